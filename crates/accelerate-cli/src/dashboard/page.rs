//! The page itself: part of the binary, so that nothing has to be fetched or installed.

use super::response::Response;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JS: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($path:literal: $kind:ident = $file:literal),* $(,)?) => {
        &[$(($path, $kind, include_str!(concat!("page/", $file)))),*]
    };
}

/// Path, media type and content of each file.
const FILES: &[(&str, &str, &str)] = files! {
    "/": HTML = "index.html",
    "/assets/style.css": CSS = "style.css",
    "/assets/icon.svg": SVG = "icon.svg",
    "/assets/api.js": JS = "api.js",
    "/assets/chart.js": JS = "chart.js",
    "/assets/curves.js": JS = "curves.js",
    "/assets/elements.js": JS = "elements.js",
    "/assets/log.js": JS = "log.js",
    "/assets/looks.js": JS = "looks.js",
    "/assets/main.js": JS = "main.js",
    "/assets/numbers.js": JS = "numbers.js",
    "/assets/plot.js": JS = "plot.js",
    "/assets/ranks.js": JS = "ranks.js",
    "/assets/runs.js": JS = "runs.js",
    "/assets/settings.js": JS = "settings.js",
    "/assets/state.js": JS = "state.js",
    "/assets/svg_file.js": JS = "svg_file.js",
    "/assets/tabs.js": JS = "tabs.js",
};

/// The file of the page at `path`, which is one of those above or none.
pub(super) fn file(path: &str) -> Option<Response> {
    let mut files = FILES.iter();
    let (_, kind, content) = files.find(|(name, _, _)| *name == path)?;
    Some(Response::new(kind, *content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands between `before` and the next `"`, for each occurrence.
    fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        let parts = text.split(before).skip(1);
        parts.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn everything_that_the_page_names_is_there_and_nothing_is_elsewhere() {
        for (path, _, content) in FILES {
            for named in quoted(content, "from \"./") {
                assert!(
                    file(&format!("/assets/{named}")).is_some(),
                    "{named} in {path}"
                );
            }
            for named in quoted(content, "=\"/assets/") {
                assert!(
                    file(&format!("/assets/{named}")).is_some(),
                    "{named} in {path}"
                );
            }
            let foreign = content.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !foreign.contains("http://") && !foreign.contains("https://"),
                "{path}"
            );
        }
        assert!(file("/assets/../index.html").is_none());
    }

    #[test]
    fn every_label_and_panel_of_the_page_leads_to_an_element() {
        let (_, _, html) = FILES[0];
        let ids = quoted(html, " id=\"");
        for before in [
            " aria-controls=\"",
            " aria-labelledby=\"",
            " for=\"",
            " href=\"#",
        ] {
            for named in quoted(html, before) {
                assert!(ids.contains(&named), "{named}");
            }
        }
        let named_by_scripts = FILES
            .iter()
            .flat_map(|(_, _, text)| quoted(text, "byId(\""));
        for named in named_by_scripts {
            assert!(ids.contains(&named), "{named}");
        }
    }
}
