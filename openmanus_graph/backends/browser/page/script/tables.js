// Tables as rows of texts, from whatever elements they are made.
const TABLES = 'table,[role=table],[role=grid],[role=treegrid]';
const CELLS = '[role=cell],[role=gridcell],[role=columnheader],[role=rowheader]';
const MOST_CELLS = 200_000;
const CELL_CHARS = 20_000;

function tables() {
  const found = [];
  let left = MOST_CELLS;
  for (const root of observed) {
    for (const table of root.querySelectorAll(TABLES)) {
      if (left <= 0 || !visibleIn(table) || table.querySelector(TABLES)) continue; // else it only holds others
      const { rows, placed } = gridOf(table, left);
      left -= placed;
      const caption = table.caption ? contentText(table.caption) : '';
      const name = namedBy(table, 'aria-labelledby') || squeeze(attr(table, 'aria-label')) || caption;
      found.push({ name: cut(name, 100), rows, count: +attr(table, 'aria-rowcount') || 0 });
    }
  }
  return { tables: found, cut: left <= 0 };
}

// A cell that spans several places is repeated in each.
function gridOf(table, most) {
  const grid = [],
    rows = rowsOf(table);
  let placed = 0;
  rows.forEach((cells, y) => {
    const row = (grid[y] ||= []);
    let x = 0;
    for (const cell of cells.filter((one) => visibleIn(one))) {
      while (row[x] !== undefined) x++;
      const text = cellText(cell),
        high = Math.min(cell.rowSpan === 0 ? Infinity : cell.rowSpan || 1, rows.length - y);
      for (let dy = 0; dy < high; dy++)
        for (let dx = 0; dx < (cell.colSpan || 1) && placed < most; dx++, placed++) (grid[y + dy] ||= [])[x + dx] = text;
    }
  });
  return { rows: Array.from(grid, (row) => Array.from(row || [], (text) => text ?? '')), placed };
}

// A row of a grid with fixed columns is made of several elements with one number.
function rowsOf(table) {
  if (table.rows) return [...table.rows].map((row) => [...row.cells]);
  const byNumber = new Map();
  for (const row of table.querySelectorAll('[role=row]')) {
    const number = +attr(row, 'aria-rowindex') || byNumber.size + 1;
    byNumber.set(number, [...(byNumber.get(number) || []), ...row.querySelectorAll(CELLS)]);
  }
  const place = (cell) => +attr(cell, 'aria-colindex') || 0;
  return [...byNumber].sort((a, b) => a[0] - b[0]).map(([, cells]) => cells.sort((a, b) => place(a) - place(b)));
}

function cellText(cell) {
  const text = contentText(cell, CELL_CHARS);
  if (text) return text;
  const shown = (one) =>
    ['checkbox', 'radio'].includes(one.type) ? String(one.checked) : (one.selectedOptions?.[0]?.label ?? one.value);
  const fields = [...cell.querySelectorAll('input:not([type=password],[type=hidden]),select,textarea')];
  return fields.filter((one) => !secrets.has(one)).map(shown).join(' ');
}
