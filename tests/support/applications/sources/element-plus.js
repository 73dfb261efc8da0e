import { createApp, reactive } from 'vue/dist/vue.esm-bundler.js';
import ElementPlus from 'element-plus';
import 'element-plus/dist/index.css';

const state = reactive({ owner: '', colour: '', row: '', page: '', city: [], shown: false, said: '' });
globalThis.state = state;
const rows = Array.from({ length: 1000 }, (_, i) => ({ value: i, label: `Row ${i}` }));
const cities = [{ value: 'de', label: 'Germany', children: [{ value: 'b', label: 'Berlin' }, { value: 'm', label: 'Munich' }] }];
const template = `
  <div style="display: flex">
    <el-menu style="width: 200px" @select="(key) => (state.page = key)">
      <el-menu-item index="users">Users</el-menu-item>
      <el-menu-item index="groups">Groups</el-menu-item>
    </el-menu>
    <el-form label-width="90px" style="padding: 20px; width: 420px">
      <el-form-item label="Owner">
        <el-select v-model="state.owner"><el-option v-for="x in ['Anna', 'Bob', 'Users']" :key="x" :label="x" :value="x"/></el-select>
      </el-form-item>
      <el-form-item label="Colour">
        <el-select v-model="state.colour"><el-option v-for="x in ['Red', 'Green', 'Blue']" :key="x" :label="x" :value="x"/></el-select>
      </el-form-item>
      <el-form-item label="Row"><el-select-v2 v-model="state.row" :options="rows"/></el-form-item>
      <el-form-item label="City"><el-cascader v-model="state.city" :options="cities"/></el-form-item>
      <el-button @click="state.shown = true">Open</el-button>
      <el-dialog v-model="state.shown" title="Send it?">
        <el-button type="primary" @click="state.said = 'sent'; state.shown = false">Send</el-button>
      </el-dialog>
    </el-form>
  </div>`;
const app = createApp({ setup: () => ({ state, rows, cities }), template }).use(ElementPlus);
app.mount(document.body.appendChild(document.createElement('div')));
