const area = document.body.appendChild(document.createElement('textarea'));
area.value = 'A first text.';
const script = document.head.appendChild(document.createElement('script'));
script.src = 'tinymce/tinymce.min.js';
script.onload = () => tinymce.init({ target: area, license_key: 'gpl' });
