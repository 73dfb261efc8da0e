import React, { useState } from 'react';
import { createRoot } from 'react-dom/client';
import { Button, DatePicker, Form, Menu, Modal, Popconfirm, Select, Switch, Table } from 'antd';

const many = Array.from({ length: 60 }, (_, i) => ({ value: `v${i}`, label: `Option ${i}` }));
const owners = ['Users', 'Anna', 'Bob'].map((name) => ({ value: name, label: name }));

function App() {
  const [state, setState] = useState({ page: 'none', rows: ['Red', 'Green', 'Blue'] });
  const [asking, setAsking] = useState(false);
  const put = (more) => setState((old) => ({ ...old, ...more }));
  globalThis.state = state;
  return (
    <div style={{ display: 'flex' }}>
      <Menu
        style={{ width: 200 }}
        items={[{ key: 'users', label: 'Users' }, { key: 'groups', label: 'Groups' }]}
        onClick={(event) => put({ page: event.key })}
      />
      <div style={{ padding: 20, width: 500 }}>
        <Form layout="vertical">
          <Form.Item label="Owner"><Select options={owners} onChange={(owner) => put({ owner })} /></Form.Item>
          <Form.Item label="Many"><Select options={many} onChange={(many) => put({ many })} /></Form.Item>
          <Form.Item label="Tags"><Select mode="multiple" options={many} onChange={(tags) => put({ tags })} /></Form.Item>
          <Form.Item label="Due"><DatePicker onChange={(_, due) => put({ due })} /></Form.Item>
          <Form.Item label="Public"><Switch onChange={(open) => put({ open })} /></Form.Item>
        </Form>
        <Button onClick={() => setAsking(true)}>Publish</Button>
        <Modal title="Publish it?" open={asking} onCancel={() => setAsking(false)}
          onOk={() => { put({ published: true }); setAsking(false); }}>All will see it.</Modal>
        <Table
          pagination={false}
          dataSource={state.rows.map((name) => ({ key: name, name }))}
          columns={[
            { title: 'Colour', dataIndex: 'name' },
            {
              title: 'Do',
              render: (_, row) => (
                <Popconfirm title={`Delete ${row.name}?`}
                  onConfirm={() => put({ rows: state.rows.filter((name) => name !== row.name) })}>
                  <a>Delete</a>
                </Popconfirm>
              ),
            },
          ]}
        />
      </div>
    </div>
  );
}

createRoot(document.body.appendChild(document.createElement('div'))).render(<App />);
