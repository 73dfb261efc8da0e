import Handsontable from 'handsontable';
import 'handsontable/styles/handsontable.min.css';
import 'handsontable/styles/ht-theme-main.min.css';

const place = document.body.appendChild(document.createElement('div'));
globalThis.table = new Handsontable(place, {
  data: [['Ann', '1', 'x'], ['Bob', '2', ''], ['Cid', '3', 'z']],
  colHeaders: ['Name', 'No', 'Note'],
  rowHeaders: true,
  columns: [{}, { type: 'numeric' }, { type: 'dropdown', source: ['new', 'old', 'x', 'z'] }],
  contextMenu: true,
  width: 500,
  height: 300,
  themeName: 'ht-theme-main',
  licenseKey: 'non-commercial-and-evaluation',
});
