import flatpickr from 'flatpickr';
import 'flatpickr/dist/flatpickr.min.css';

for (const [name, options] of [['Departure', { defaultDate: '2031-03-10' }], ['Stay', { mode: 'range', defaultDate: '2031-03-10' }]]) {
  const label = document.body.appendChild(document.createElement('label'));
  label.textContent = `${name} `;
  const field = label.appendChild(document.createElement('input'));
  globalThis[name.toLowerCase()] = flatpickr(field, options);
}
