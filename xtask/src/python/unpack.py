"""Unpacks parts of a zip or tar archive: one JSON argument {archive, destination, parts}."""

import json
import os
import shutil
import sys
import tarfile
import zipfile


def main(job):
    destination = os.path.abspath(job["destination"])
    found = [False] * len(job["parts"])
    for name, open_member in members(job["archive"]):
        for index, part in enumerate(job["parts"]):
            target = target_of(name, part)
            if target is None:
                continue
            found[index] = True
            path = os.path.abspath(os.path.join(destination, target))
            if not path.startswith(destination + os.sep):
                sys.exit(f"the archive wants to write outside the folder: `{name}`")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # Reading to the end compares the checksum.
            with open_member() as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    for part, hit in zip(job["parts"], found):
        if not hit:
            sys.exit(f"the archive holds no `{part['from']}`")


def members(archive):
    """Each file of the archive: its name and a function that opens it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if not info.is_dir():
                    yield info.filename, lambda info=info: opened.open(info)
    else:
        with tarfile.open(archive) as opened:
            for info in opened:
                if info.isfile():
                    yield info.name, lambda info=info: opened.extractfile(info)


def target_of(name, part):
    """Where a file goes under this part, or None."""
    if not part["from"].endswith("/"):
        return part["to"] if name == part["from"] else None
    if not name.startswith(part["from"]):
        return None
    below = name[len(part["from"]):]
    return None if below.startswith(tuple(part["without"])) else part["to"] + below


main(json.loads(sys.argv[1]))
