/** Bar plots, drawn as SVG. Each says its numbers in words as well: the picture is not all there is. */

import { h, shape } from "./dom.js";

const WIDTH = 360;
const HEIGHT = 96;
const GAP = 0.2; // of a bar's place

/**
 * Draw one bar for each of some numbers.
 *
 * @param {string} caption  What is drawn, with the sum.
 * @param {{label: string, parts: number[], words: string}[]} bars  The parts of a bar lie on one another.
 * @param {string[]} classes  Of the parts.
 */
export function barPlot(caption, bars, classes) {
  const highest = Math.max(0, ...bars.map(({ parts }) => total(parts)));
  const place = WIDTH / Math.max(1, bars.length);
  const drawn = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": caption, preserveAspectRatio: "none" },
    shape("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    ...bars.map(({ parts, words }, position) => {
      let top = HEIGHT - 1;
      const left = (position + GAP / 2) * place;
      return shape("g", { class: "bar-of-plot" },
        shape("title", {}, words),
        shape("rect", { class: "whole", x: position * place, y: 0, width: place, height: HEIGHT }),
        ...parts.map((part, number) => {
          const height = highest ? (part / highest) * (HEIGHT - 8) : 0;
          top -= height;
          return shape("rect", { class: classes[number], x: left, y: top, width: place * (1 - GAP), height });
        }));
    }));
  const ends = bars.length > 1 ? [bars[0].label, bars.at(-1).label] : bars.map(({ label }) => label);
  return h("figure.plot", {}, h("figcaption", {}, caption), drawn,
    h("div.plot-ends.muted", { aria: { hidden: "true" } }, ends.map((label) => h("span", {}, label))));
}

/** Return all days from one to another, as they are written in rows. */
export function daysBetween(first, last) {
  const days = [];
  for (let time = Date.parse(first); time <= Date.parse(last); time += 86_400_000) days.push(new Date(time).toISOString().slice(0, 10));
  return days;
}

function total(parts) {
  return parts.reduce((sum, part) => sum + part, 0);
}
