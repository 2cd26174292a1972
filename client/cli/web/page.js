'use strict';
// Text of others reaches the document as text nodes alone.
const token = new URLSearchParams(location.hash.slice(1)).get('token');
const headers = token ? {'X-Gpumem-Token': token} : {};
const kPoints = 720, kStep = 5, kEvents = 500, kShares = 8, kBars = 12, kRows = 200, kSilenceMs = 4000, kLeastMs = 300e3;
const kColours = ['#3b76d6', '#c2571a', '#2e8b57', '#b0428f', '#8a7a12', '#6f5bd0', '#1f8a9c', '#c43d4b', '#7a828e'];
const kMarked = new Set(['waiting', 'denied', 'pressure', 'terminating', 'killing', 'died', 'quarantined', 'debt',
  'past-broker', 'unexplained', 'quota']);
const view = {points: [], events: [], sample: null, device: 0, accounts: [], heard: Date.now(), problem: ''};
const has_charts = typeof Chart !== 'undefined';
const charts = {}, shown = {};
const $ = id => document.getElementById(id);

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}
function size_text(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; ++unit; }
  return (bytes >= 100 || Number.isInteger(bytes) ? bytes.toFixed(0) : bytes.toFixed(1)) + ' ' + units[unit];
}
const size_or_none = bytes => bytes ? size_text(bytes) : '–';
const clock_text = ms => new Date(ms).toLocaleTimeString([], {hour12: false});
const span_text = ms => ms < 120e3 ? Math.round(ms / 1000) + ' s' : ms < 7200e3 ? Math.round(ms / 60e3) + ' min' : Math.round(ms / 3600e3) + ' h';
const gib_hours = amount => (amount / 2 ** 30 / 3600).toFixed(2);

// Cells are [text, class, colour or depth]. A table that has not changed is left alone: a selection in it stays.
function fill(id, rows, none) {
  const text = JSON.stringify(rows);
  if (shown[id] === text) return;
  shown[id] = text;
  const body = $(id).tBodies[0];
  if (!rows.length) {
    const cell = make('td', none);
    cell.colSpan = $(id).tHead.rows[0].cells.length;
    const row = make('tr');
    row.append(cell);
    return body.replaceChildren(row);
  }
  body.replaceChildren(...rows.map(cells => {
    const row = make('tr');
    for (const [text, name, more] of cells) {
      const cell = make('td', name === 'code' ? '' : text, name);
      if (name === 'code') cell.append(make('code', text));
      if (typeof more === 'string') {
        const swatch = make('span', '', 'swatch');
        swatch.style.background = more;
        cell.prepend(swatch);
      } else if (more) {
        cell.style.paddingLeft = more + 'rem';
      }
      row.append(cell);
    }
    return row;
  }));
}

function say(text, is_alarm) {
  if ($('state').textContent !== text) $('state').textContent = text;
  $('state').classList.toggle('alarm', Boolean(is_alarm));
}

// ---- charts
function style_of(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function draw(id, type, data, options) {
  if (!has_charts) return;
  const text = style_of('--text'), line = style_of('--line');
  for (const axis of Object.values(options.scales)) {
    axis.ticks = {color: text, ...axis.ticks};
    axis.grid = {color: line, ...axis.grid};
  }
  options = {animation: false, responsive: true, maintainAspectRatio: false, parsing: type !== 'line', ...options};
  options.plugins = {legend: {labels: {color: text, boxWidth: 12}}, ...options.plugins};
  if (charts[id]) {
    Object.assign(charts[id], {options});
    charts[id].data = data;
    charts[id].update('none');
  } else {
    charts[id] = new Chart($(id), {type, data, options});
  }
}
// At most five steps, each a power of two.
const size_axis = most => ({stacked: true, beginAtZero: true, suggestedMax: most, ticks: {callback: size_text, stepSize: 2 ** Math.ceil(Math.log2((most || 5) / 5))}});

// The names with the largest most, and one for all others.
function largest_shares(points) {
  const most = new Map();
  for (const point of points)
    for (const [name, bytes] of point.devices[view.device] || []) most.set(name, Math.max(most.get(name) || 0, bytes));
  most.delete('others');
  return [...most].sort((a, b) => b[1] - a[1]).slice(0, kShares);
}

function draw_timeline() {
  const points = view.points, largest = largest_shares(points), now = points.at(-1);
  const names = largest.map(([name]) => name), known = new Map(names.map((name, i) => [name, i]));
  const rows = names.map(() => []), others = [];
  for (const point of points) {
    const bytes = new Array(names.length).fill(0);
    let rest = 0;
    for (const [name, amount] of point.devices[view.device] || [])
      if (known.has(name)) bytes[known.get(name)] = amount; else rest += amount;
    bytes.forEach((amount, i) => rows[i].push({x: point.t * 1000, y: amount}));
    others.push({x: point.t * 1000, y: rest});
  }
  const has_others = others.some(one => one.y);
  const pool = view.sample.devices[view.device]?.pool || 0;
  const last = data => data.length ? data.at(-1).y : 0, most = data => data.reduce((a, b) => Math.max(a, b.y), 0);
  const all = names.map((name, i) => ({name, data: rows[i], colour: kColours[i]}));
  if (has_others) all.push({name: 'others', data: others, colour: kColours[kShares]});
  fill('timeline', all.map(one => [[one.name, 'name', one.colour], [size_or_none(last(one.data)), 'number'], [size_text(most(one.data)), 'number']]),
    'nothing was charged');
  const end = now.t * 1000, first = Math.min(points[0].t * 1000, end - kLeastMs);
  const marks = view.events.filter(one => kMarked.has(one.kind) && one.time_ms >= first);
  const datasets = all.map((one, i) => ({label: one.name, data: one.data, fill: i ? '-1' : 'origin', backgroundColor: one.colour + 'b0',
    borderColor: one.colour, borderWidth: 1, pointRadius: 0, stack: 'bytes'}));
  datasets.push({label: 'events', type: 'scatter', yAxisID: 'marks', stack: 'marks', order: -1, data: marks.map(one => ({x: one.time_ms, y: 0, event: one})),
    pointStyle: 'triangle', radius: 6, hoverRadius: 8, backgroundColor: style_of('--alarm'), borderColor: style_of('--back')});
  const label = item => item.raw.event ? `${clock_text(item.raw.x)} ${item.raw.event.kind}: ${item.raw.event.tenant}, ${item.raw.event.words}`
    : `${item.dataset.label}: ${size_text(item.raw.y)}`;
  draw('timeline-chart', 'line', {datasets}, {
    interaction: {mode: 'nearest', intersect: false},
    plugins: {tooltip: {callbacks: {title: items => items.length ? clock_text(items[0].raw.x) : '', label}}},
    scales: {x: {type: 'linear', min: first, max: end, ticks: {callback: clock_text, maxTicksLimit: innerWidth < 800 ? 4 : 7, maxRotation: 0}},
      y: size_axis(pool), marks: {axis: 'y', display: false, min: -0.04, max: 1}}});
}

function draw_extents(sessions) {
  const held = sessions.filter(row => row.extents && row.extents.length);
  fill('extents', held.flatMap(row => row.extents.map(one =>
    [[holder_text(row), 'name'], [one.device], [size_text(one.size), 'number'], [one.count, 'number']])).slice(0, kRows), 'nobody holds an extent');
  const bars = held.slice(0, kBars), sizes = [...new Set(bars.flatMap(row => row.extents.map(one => one.size)))].sort((a, b) => a - b);
  const bytes = (row, size) => row.extents.reduce((sum, one) => sum + (one.size === size ? one.size * one.count : 0), 0);
  draw('extents-chart', 'bar', {labels: bars.map(row => short_text(holder_text(row))), datasets: sizes.map((size, i) => ({label: size_text(size),
    data: bars.map(row => bytes(row, size)), backgroundColor: kColours[i % kColours.length]}))}, {indexAxis: 'y',
    plugins: {tooltip: {callbacks: {label: item => `${item.raw / sizes[item.datasetIndex]} of ${item.dataset.label}`}}},
    scales: {x: size_axis(Math.max(0, ...bars.map(row => row.charged))), y: {stacked: true}}});
}
const short_text = text => text.length > 24 ? text.slice(0, 23) + '…' : text;
const holder_text = row => `${row.pid || 'session ' + row.id} ${row.name}`;

// ---- samples
function show_sample() {
  const sample = view.sample;
  if (!sample || document.hidden) return;
  if ($('device').options.length !== sample.devices.length) {
    $('device').replaceChildren(...sample.devices.map((one, i) => new Option(`${one.name} ${one.model}`, i)));
    $('device-choice').hidden = sample.devices.length < 2;
    view.device = Math.min(view.device, Math.max(0, sample.devices.length - 1));
    $('device').value = view.device;
  }
  fill('devices', sample.devices.map(one => [[one.name], [one.model, 'name'], ...[one.pool, one.lent, one.reserved, one.free, one.contexts,
    one.unmanaged, one.asked].map(bytes => [size_or_none(bytes), 'number']), [one.waiting || '–', 'number'],
    [one.utilization === null ? '–' : one.utilization + '%', 'number']]), 'the broker lends no device');
  draw_timeline();
  fill('waiting', sample.waiting.map(one => [[one.tenant, 'name'], [one.session], [one.device], [size_text(one.asked), 'number'],
    [span_text(one.waited_ms), 'number'], [span_text(one.wait_limit_ms), 'number'], [one.ahead], [one.why, 'words'], [one.command, 'code']]),
    'no request waits that you may see');
  const waiting = sample.devices.reduce((sum, one) => sum + one.waiting, 0);
  $('waiting-note').textContent = waiting > sample.waiting.length ? `${waiting} wait in all.` : '';
  fill('holders', sample.rows.map(row => [[row.kind === 'session' ? row.name + (row.state ? ` (${row.state})` : '') : row.name, 'name', row.depth],
    [row.user], [row.pid || '', 'number'], [row.devices], ...[row.charged, row.in_use, row.peak, row.asked, row.waiting].map(bytes => [size_or_none(bytes), 'number'])]),
    'nobody holds memory');
  $('holders-note').textContent = sample.row_count > sample.rows.length ? `${sample.rows.length} of ${sample.row_count} rows; gpumem ps has all.` : '';
  draw_extents(sample.rows.filter(row => row.kind === 'session').sort((a, b) => b.charged - a.charged));
  show_events();
}

function show_events() {
  fill('events', view.events.slice(-kRows).reverse().map(one => [[one.time_ms === null ? '' : clock_text(one.time_ms), 'number'], [one.kind, 'number'],
    [one.tenant, 'name'], [one.session ? one.session + (one.pid ? ` (pid ${one.pid})` : '') : '', 'number'], [one.device], [one.words, 'words']]), 'none');
}

function add_point([t, devices]) {
  const last = view.points.at(-2);
  if (last && t < last.t) view.points = [];  // the clock was set back
  else if (last && t < last.t + kStep) view.points.pop();
  view.points.push({t, devices});
  if (view.points.length > kPoints) view.points.shift();
}
function add_events(events) { view.events = view.events.concat(events).slice(-kEvents); }

const takes = {
  hello(message) {
    $('host').textContent = message.host;
    $('rights').textContent = message.rights;
    document.title = 'gpumem: ' + message.host;
    const {names, points} = message.timeline;
    view.points = points.map(([t, devices]) => ({t, devices: devices.map(list => list.map(([i, bytes]) => [names[i], bytes]))}));
    view.events = message.events;
  },
  sample(message) {
    view.sample = message;
    view.problem = '';
    add_point(message.point);
    add_events(message.events || []);
    say('live');
    show_sample();
  },
  problem(message) {
    view.problem = message.words;
    say('trying again: ' + message.words, true);
  },
};

async function read(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = '';;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const [, kind, data] = /^event: (\w+)\ndata: (.*)$/.exec(text.slice(0, end)) || [];
      if (!Object.hasOwn(takes, kind)) continue;
      view.heard = Date.now();
      takes[kind](JSON.parse(data));
    }
  }
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch('api/stream', {headers, cache: 'no-store'});
      if (answer.ok) await read(answer.body);
      view.problem = answer.ok ? 'the stream has ended: trying again' : (await answer.text()).trim();
      if (answer.status === 401) return say(view.problem, true);
    } catch {
      view.problem = 'gpumem web does not answer: trying again';
    }
    say(view.problem, true);
    await new Promise(resolve => setTimeout(resolve, 2000));
  }
}

// ---- accounts
async function show_accounts() {
  const days = $('since').value;
  $('accounts-note').textContent = '';
  try {
    const answer = await fetch('api/accounts' + (days ? '?since=' + Math.floor(Date.now() / 1000 - days * 86400) : ''), {headers, cache: 'no-store'});
    if (!answer.ok) throw new Error((await answer.text()).trim());
    view.accounts = (await answer.json()).rows.sort((a, b) => b.charged - a.charged);
  } catch (error) {
    view.accounts = [];
    $('accounts-note').textContent = error.message;
  }
  draw_accounts();
}
function draw_accounts() {
  const rows = view.accounts, bars = rows.slice(0, kBars);
  $('download').disabled = !rows.length;
  fill('accounts', rows.slice(0, kRows).map(row => [[row.tenant, 'name'], [row.device], ...[row.charged, row.kept, row.waiting].map(one => [gib_hours(one), 'number'])]),
    'nothing was used');
  const bar = (label, key, colour) => ({label, data: bars.map(row => row[key] / 2 ** 30 / 3600), backgroundColor: colour});
  draw('accounts-chart', 'bar', {labels: bars.map(row => short_text(`${row.tenant}, ${row.device}`)), datasets: [bar('GiB-hours', 'charged', kColours[0]),
    bar('unused guarantee', 'kept', kColours[8]), bar('waited for', 'waiting', kColours[7])]}, {indexAxis: 'y', scales: {x: {beginAtZero: true}, y: {}}});
}
// A name that begins as a formula does stays text in a spreadsheet.
const csv_text = text => '"' + (/^[=+\-@\t\r]/.test(text) ? "'" : '') + text.replaceAll('"', '""') + '"';
function download() {
  const lines = view.accounts.map(row => [csv_text(row.tenant), csv_text(row.device), ...[row.charged, row.kept, row.waiting].map(one => one.toFixed(0))].join());
  const link = make('a');
  link.href = URL.createObjectURL(new Blob(['tenant,device,charged,kept,waiting\n' + lines.join('\n') + '\n'], {type: 'text/csv'}));
  link.download = 'gpumem-accounts.csv';
  link.click();
  URL.revokeObjectURL(link.href);
}

$('no-charts').hidden = has_charts;
document.body.classList.toggle('no-charts', !has_charts);
$('device').addEventListener('change', () => { view.device = Number($('device').value); draw_timeline(); });
$('ask').addEventListener('click', show_accounts);
$('download').addEventListener('click', download);
document.addEventListener('visibilitychange', show_sample);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { show_sample(); draw_accounts(); });
setInterval(() => {
  if (!view.problem && view.sample && Date.now() - view.heard > kSilenceMs) say('the broker is silent: what is shown is old', true);
}, 1000);
show_accounts();
follow();
