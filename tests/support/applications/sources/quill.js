import Quill from 'quill';
import 'quill/dist/quill.snow.css';

const place = document.body.appendChild(document.createElement('div'));
globalThis.quill = new Quill(place, { theme: 'snow', placeholder: 'Write here' });
