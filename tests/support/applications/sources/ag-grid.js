import { AllCommunityModule, ModuleRegistry, createGrid } from 'ag-grid-community';

ModuleRegistry.registerModules([AllCommunityModule]);
const place = document.body.appendChild(document.createElement('div'));
place.style = 'width: 700px; height: 400px';
const data = Array.from({ length: 200 }, (_, i) => ({ make: `Make ${i}`, model: `Model ${i}`, price: (i * 37) % 500 }));
globalThis.data = data;
globalThis.grid = createGrid(place, {
  columnDefs: [
    { field: 'make', editable: true, filter: true },
    { field: 'model' },
    { field: 'price', editable: true },
  ],
  rowData: data,
  rowSelection: { mode: 'multiRow' },
});
