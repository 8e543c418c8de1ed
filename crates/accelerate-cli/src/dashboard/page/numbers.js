// Numbers: smoothing, round ticks, short texts.

/**
 * The exponential moving average of a curve, free of the bias towards zero at its beginning.
 * What is no number stays a gap and leaves the average as it was.
 */
export function smooth(values, weight) {
  if (weight === 0) return values;
  let average = 0;
  let share = 1;
  return values.map((value) => {
    if (value === null) return null;
    average = average * weight + value * (1 - weight);
    share *= weight;
    return average / (1 - share);
  });
}

/** Round numbers within a range, about as many as wanted. */
export function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high + step * 1e-9; index += 1) {
    found.push(index * step);
  }
  return found;
}

/** Powers of ten within a range; round numbers where there are fewer than two. */
export function logarithmicTicks(low, high, wanted) {
  const [from, to] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const every = Math.max(1, Math.ceil((to - from + 1) / wanted));
  const found = [];
  for (let power = from; power <= to; power += every) found.push(10 ** power);
  return found.length >= 2 ? found : ticks(low, high, wanted).filter((tick) => tick > 0);
}

/** A number in few characters. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(size >= 1000 ? 7 : 4)));
}

/** A round number as it is, for an axis. */
export function exact(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-4)) return String(Number(value.toPrecision(4)).toExponential());
  return String(Number(value.toPrecision(8)));
}

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.1) return `${short(seconds * 1000)} ms`;
  if (seconds < 60) return `${short(seconds)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

/** Bytes as people say them. */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let rest = count;
  while (rest >= 1024 && unit + 1 < units.length) {
    rest /= 1024;
    unit += 1;
  }
  return `${Number(rest.toPrecision(3))} ${units[unit]}`;
}

/** The moment of a number of seconds since 1970, in the time of the reader. */
export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "";
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
