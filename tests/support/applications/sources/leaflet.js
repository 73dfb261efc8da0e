import L from 'leaflet';
import 'leaflet/dist/leaflet.css';

L.Icon.Default.imagePath = 'leaflet/images/';
const place = document.body.appendChild(document.createElement('div'));
place.style.height = '500px';
const map = L.map(place).setView([50, 12], 5);
globalThis.map = map;
for (const [name, at] of [['Berlin', [52.5, 13.4]], ['Munich', [48.1, 11.6]], ['Prague', [50.1, 14.4]]])
  L.marker(at, { title: name }).addTo(map).bindPopup(`The weather in ${name} is fine.`);
globalThis.rivers = L.layerGroup([L.polyline([[48, 11], [52, 9]])]);
L.control.layers({ Plain: L.layerGroup(), Relief: L.layerGroup() }, { Rivers: rivers }).addTo(map);
