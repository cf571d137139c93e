// Draws the page from the JSON in #data. Texts of the run reach the document as text nodes only.
// What was drawn is noted in data-* attributes: data-drawn of each figure, data-bars, data-cells, …
// of what it shows; the tests read them. With the fragment #probe the page also counts the pixels.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const tally = (name) => { root.dataset[name] = String(Number(root.dataset[name] || 0) + 1); };
  addEventListener('error', () => tally('errors'));
  addEventListener('securitypolicyviolation', () => tally('violations'));

  // ---- elements and numbers

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const empty = (place, why) => place.replaceChildren(make('p', 'empty', why));
  const known = (value) => typeof value === 'number' && Number.isFinite(value);
  const digits = (value, most) => value.toLocaleString('en', { maximumFractionDigits: most });
  const number = (value) => {
    if (!known(value)) return '–';
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(2);
    return digits(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4);
  };
  const count = (value) => known(value) ? digits(value, 0) : '–';
  const short = (value, units, base) => {
    if (!known(value)) return '–';
    let i = 0;
    while (Math.abs(value) >= base && i + 1 < units.length) { value /= base; ++i; }
    return digits(value, value >= 100 || i === 0 ? 0 : value >= 10 ? 1 : 2) + units[i];
  };
  const bytes = (value) => short(value, [' B', ' kB', ' MB', ' GB', ' TB', ' PB'], 1000);
  const compact = (value) => short(value, ['', 'k', 'M', 'G', 'T'], 1000);
  const percent = (value, most = 1) => known(value) ? digits(100 * value, most) + ' %' : '–';
  const seconds = (value) => {
    if (!known(value)) return '–';
    if (value === 0) return '0 s';
    if (value < 1e-3) return digits(value * 1e6, 1) + ' µs';
    if (value < 1) return digits(value * 1e3, value < 0.01 ? 2 : value < 0.1 ? 1 : 0) + ' ms';
    if (value < 120) return digits(value, 2) + ' s';
    const whole = Math.round(value), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60;
    return h > 0 ? `${h} h ${m} min` : `${m} min ${whole % 60} s`;
  };
  const fixed = (value, decimals) => known(value) ? value.toFixed(decimals) : '–';
  const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;
  const color = (name) => getComputedStyle(root).getPropertyValue('--' + name).trim();

  // The unit in which a time axis that ends at `end` seconds is legible.
  const timeUnit = (end) =>
    end < 2e-3 ? { name: 'µs', s: 1e-6 } : end < 1 ? { name: 'ms', s: 1e-3 }
      : end < 600 ? { name: 's', s: 1 } : end < 36000 ? { name: 'min', s: 60 } : { name: 'h', s: 3600 };
  // 1, 2 or 5 times a power of ten; so large that at most `most` ticks fit.
  const niceStep = (range, most) => {
    const least = range / Math.max(1, most), power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= least * 0.9999) || 10 * power;
  };

  // A table behind <details>, made when it is opened.
  const table = (details, caption, heads, rows, words = []) => {
    details.addEventListener('toggle', () => {
      if (!details.open || details.querySelector('table')) return;
      const scroll = make('div', 'scroll'), element = make('table');
      scroll.tabIndex = 0;
      scroll.setAttribute('role', 'region');
      scroll.setAttribute('aria-label', caption);
      element.append(make('caption', '', caption));
      const head = element.createTHead().insertRow(), body = element.createTBody();
      heads.forEach((text, i) => {
        const cell = make('th', words.includes(i) ? 'words' : '', text);
        cell.scope = 'col';
        head.append(cell);
      });
      for (const row of rows()) {
        const line = body.insertRow();
        row.forEach((text, i) => line.append(make('td', words.includes(i) ? 'words' : '', text)));
      }
      scroll.append(element);
      details.append(scroll);
    });
  };

  const redraws = [];  // of what depends on colours and width
  const figure = (element, draw) => {
    const run = () => {
      draw();
      element.dataset.drawn = 'true';
    };
    redraws.push(run);
    run();
  };

  // ---- header

  const facts = data.facts || {};
  const text = (value) => value === undefined || value === null ? '' : String(value);

  function drawHeader() {
    const algorithm = text(facts.algorithm), model = text(facts.model), set = text(facts.data);
    const what = [model, set && 'on ' + set].filter(Boolean).join(' ');
    $('headline').textContent = [algorithm, what].filter(Boolean).join(': ') || 'A training run';
    $('run').textContent = 'Grapevine run ' + data.run;
    document.title = `${data.run} · ${algorithm || 'Grapevine'}`;

    const tile = (name, value, note) => {
      if (value === '–' || value === '') return;
      const box = make('div'), dd = make('dd', '', value);
      if (note) dd.append(' ', make('small', '', note));
      box.append(make('dt', '', name), dd);
      $('tiles').append(box);
    };
    const s = data.staleness;
    tile('Test accuracy', percent(facts.test_accuracy, 2));
    tile('Final training loss', number(facts.final_loss));
    if (known(facts.wall_seconds)) tile('Duration', seconds(facts.wall_seconds));
    else if (data.records > 0) tile('Time in the trace', seconds(data.heat.end_s));
    tile('Throughput', known(facts.samples_per_second) ? compact(facts.samples_per_second) : '–', 'samples/s');
    tile('Mean staleness', number(s.mean), known(s.p99) ? `p99 ${number(s.p99)}` : '');
    tile('Messages', known(data.messages) ? compact(data.messages) : '–',
      known(data.bytes) ? bytes(data.bytes) + ' sent' : '');

    $('tiles').hidden = $('tiles').childElementCount === 0;

    const fact = (name, value) => {
      if (value === '' || value === '–') return;
      const box = make('div');
      box.append(make('dt', '', name), make('dd', '', value));
      $('facts').append(box);
    };
    const servers = data.servers > 0 ? ` and ${plural(data.servers, 'server')}` : '';
    fact('Algorithm', algorithm);
    fact('Model', model + (known(facts.parameters) ? ` (${compact(facts.parameters)} parameters)` : ''));
    fact('Data', set);
    fact('Ranks', plural(data.workers, 'worker') + servers + (data.processes > 1 ? ` in ${data.processes} processes` : ''));
    fact('Steps', count(facts.steps));
    fact('Seed', text(facts.seed));
    fact('Host', text(facts.host));
    fact('Date', text(facts.date));
    if (facts.wiring && typeof facts.wiring === 'object')
      fact('Wiring', Object.entries(facts.wiring).map(([key, value]) => `${key}=${text(value)}`).join(', '));
    if (Array.isArray(facts.lost_ranks) && facts.lost_ranks.length > 0)
      fact('Lost ranks', facts.lost_ranks.join(', '));
    for (const change of data.changes)
      fact(`From ${seconds(change.time_s)} on`,
        Object.entries(change.settings).map(([name, value]) => `${name} = ${text(value)}`).join(', '));
    const version = facts.versions && text(facts.versions.grapevine);
    $('made').textContent = `Made by grapevine trace --html from ${plural(data.records, 'record')}` +
      (version ? ` of Grapevine ${version}.` : '.');
  }

  function drawNotes() {
    const notes = [...data.missing];
    if (facts.error) notes.push('the run has failed: ' + text(facts.error));
    if (facts.interrupted === true) notes.push('the run was stopped before its end');
    if (data.curves.damaged_rows > 0)
      notes.push(`${plural(data.curves.damaged_rows, 'row')} of metrics.csv cannot be read`);
    // Sentences begin with a capital letter, names of files stay as they are.
    const sentence = (note) => /^[a-z]+ /.test(note) ? note[0].toUpperCase() + note.slice(1) : note;
    for (const note of notes) $('note-list').append(make('li', '', sentence(text(note))));
    $('notes').hidden = notes.length === 0;
  }

  // ---- charts by the library

  const charts = new Map();
  const chart = (canvas, config) => {
    charts.get(canvas)?.destroy();
    Chart.defaults.color = color('soft');
    Chart.defaults.borderColor = color('grid');
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 12;
    Chart.defaults.animation = false;
    Chart.defaults.maintainAspectRatio = false;
    charts.set(canvas, new Chart(canvas, config));
    return charts.get(canvas);
  };
  const axis = (title, more = {}) => ({ title: { display: true, text: title }, ticks: { maxRotation: 0, autoSkipPadding: 14 }, ...more });

  let by = 'time';
  const [STEP, TIME, LOSS, LOWEST, HIGHEST, TOP1] = [0, 1, 2, 3, 4, 5];
  const curve = () => data.curves[by === 'time' ? 'by_time' : 'by_step'];
  const lastTime = () => data.curves.by_time.reduce((last, p) => Math.max(last, p[TIME]), 0);
  const along = () => {
    if (by === 'step') return { x: (p) => p[STEP], title: 'step of a rank', at: (x) => 'step ' + count(x) };
    const unit = timeUnit(lastTime());
    return {
      x: (p) => known(p[TIME]) ? p[TIME] / unit.s : null, title: `time (${unit.name})`,
      at: (x) => `${number(x)} ${unit.name}`
    };
  };
  const xy = (points, x, y) => points.filter((p) => known(x(p)) && known(p[y])).map((p) => ({ x: x(p), y: p[y] }));

  function lineChart(canvas, datasets, { x, title, y, format }) {
    return chart(canvas, {
      type: 'line',
      data: { datasets },
      options: {
        parsing: false,
        interaction: { mode: 'nearest', axis: 'x', intersect: false },
        scales: {
          x: axis(title, {
            type: 'linear', min: 0, max: greatest(datasets.flatMap((set) => set.data.map((point) => point.x))) || undefined,
            ticks: { maxRotation: 0, autoSkipPadding: 14, includeBounds: false, precision: by === 'step' ? 0 : undefined }
          }),
          y: axis(y, { ticks: { callback: format, maxTicksLimit: 7 }, ...(datasets.yAxis || {}) })
        },
        plugins: {
          legend: {
            align: 'start',
            labels: {
              usePointStyle: true, boxWidth: 18, boxHeight: 7, filter: (item) => item.text !== '',
              sort: (a, b) => (a.pointStyle === 'rect') - (b.pointStyle === 'rect') || a.datasetIndex - b.datasetIndex
            }
          },
          tooltip: {
            filter: (item) => item.dataset.label !== '' && !item.dataset.fill,
            callbacks: {
              title: (items) => items.length ? x(items[0].parsed.x) : '',
              label: (item) => `${item.dataset.label}: ${format(item.parsed.y)}`
            }
          }
        }
      }
    });
  }

  const line = (label, points, shade, more = {}) => ({
    label, data: points, borderColor: shade, backgroundColor: shade, borderWidth: 2,
    pointRadius: points.length < 3 ? 3 : 0, pointHitRadius: 8, tension: 0, pointStyle: 'line', ...more
  });
  const dots = (label, points, shade) => line(label, points, shade,
    { pointRadius: points.length > 40 ? 2 : 4, pointStyle: 'rectRot', borderWidth: 1.5, borderDash: [5, 4], clip: 8 });

  const noCurve = () => data.curves.problem || 'metrics.csv has no row: no step was logged';

  function setUpCurves() {
    const loss = $('loss-chart'), accuracy = $('accuracy-chart');
    const lossBox = loss.parentElement, accuracyBox = accuracy.parentElement;
    const points = data.curves.by_step, valid = data.curves.validations;
    if (points.length === 0) {
      for (const box of [lossBox, accuracyBox]) {
        empty(box, noCurve());
        box.className = '';
      }
      $('loss-by').hidden = $('loss-table').hidden = true;
      return;
    }
    figure(loss, drawLoss);
    const scored = points.some((p) => known(p[TOP1])) || valid.some((p) => known(p[3]));
    if (scored) figure(accuracy, drawAccuracy);
    else {
      empty(accuracyBox, 'This task has no accuracy.');
      accuracyBox.className = '';
    }
    for (const input of $('loss-by').querySelectorAll('input'))
      input.addEventListener('change', () => {
        by = input.value;
        drawLoss();
        if (scored) drawAccuracy();
      });
    const first = points[0], last = points[points.length - 1];
    loss.setAttribute('aria-label', `Line chart. The training loss goes from ${number(first[LOSS])} ` +
      `to ${number(last[LOSS])}` + (valid.length ? `, that of the test data ends at ${number(valid[valid.length - 1][2])}.` : '.'));
    accuracy.setAttribute('aria-label', `Line chart. The accuracy of a batch goes from ${percent(first[TOP1])} ` +
      `to ${percent(last[TOP1])}` + (valid.length ? `, that of the test data ends at ${percent(valid[valid.length - 1][3])}.` : '.'));
    table($('loss-table'), 'Training by step, then the tests of the averaged model',
      ['', 'step', 'time', 'loss', 'lowest', 'highest', 'accuracy'],
      () => [...points.map((p) => ['training', number(p[STEP]), seconds(p[TIME]), fixed(p[LOSS], 4), fixed(p[LOWEST], 4), fixed(p[HIGHEST], 4), percent(p[TOP1])]),
        ...valid.map((p) => ['test', count(p[0]), seconds(p[1]), fixed(p[2], 4), '', '', percent(p[3])])], [0]);
  }

  function drawLoss() {
    const { x, title, at } = along(), points = curve(), valid = data.curves.validations;
    const band = { borderWidth: 0, pointRadius: 0, pointHitRadius: 0, pointStyle: 'rect', backgroundColor: color('band') };
    const datasets = [
      line('', xy(points, x, LOWEST), 'transparent', { ...band, order: 3 }),
      line('lowest to highest', xy(points, x, HIGHEST), 'transparent', { ...band, fill: '-1', order: 3 }),
      line('training, mean', xy(points, x, LOSS), color('compute'), { order: 2 })
    ];
    const tested = xy(valid, x, 2);
    if (tested.length) datasets.push(dots('test, averaged model', tested, color('second')));
    const made = lineChart($('loss-chart'), datasets, { x: at, title, y: 'loss', format: number });
    $('loss-chart').dataset.points = made.data.datasets[2].data.length;
    $('loss-chart').dataset.tests = tested.length;
  }

  function drawAccuracy() {
    const { x, title, at } = along(), points = curve(), valid = data.curves.validations;
    const datasets = [line('training batches', xy(points, x, TOP1), color('compute'), { order: 2 })];
    const tested = xy(valid, x, 3);
    if (tested.length) datasets.push(dots('test, averaged model', tested, color('second')));
    datasets.yAxis = { min: 0, suggestedMax: 1 };
    lineChart($('accuracy-chart'), datasets, { x: at, title, y: 'accuracy (top 1)', format: (value) => percent(value) });
    $('accuracy-chart').dataset.points = datasets[0].data.length;
  }

  // ---- staleness

  const barName = ([from, to]) => from === to ? String(from) : `${from} to ${to}`;

  function setUpStaleness() {
    const canvas = $('staleness-chart'), bars = data.staleness.bars, s = data.staleness;
    if (bars.length === 0) {
      $('staleness-table').hidden = true;
      $('staleness-log').parentElement.hidden = true;
      canvas.parentElement.className = '';
      empty(canvas.parentElement, 'The trace has no applied update.');
      return;
    }
    const all = bars.reduce((sum, bar) => sum + bar[2], 0);
    $('staleness-text').textContent = `${plural(all, 'update')}: mean ${number(s.mean)}, ` +
      `median ${number(s.p50)}, 99 % at most ${number(s.p99)}, greatest ${number(s.max)}.`;
    canvas.setAttribute('aria-label', 'Bar chart of the staleness of applied updates. ' + $('staleness-text').textContent);
    table($('staleness-table'), 'Applied updates by staleness', ['staleness', 'updates', 'share'],
      () => bars.map((bar) => [barName(bar), count(bar[2]), percent(bar[2] / all, 2)]));
    figure(canvas, drawStaleness);
    $('staleness-log').addEventListener('change', drawStaleness);
  }

  function drawStaleness() {
    const canvas = $('staleness-chart'), bars = data.staleness.bars, log = $('staleness-log').checked;
    const made = chart(canvas, {
      type: 'bar',
      data: {
        labels: bars.map(barName),
        datasets: [{
          label: 'updates', data: bars.map((bar) => bar[2] || null), backgroundColor: color('compute'),
          maxBarThickness: 46, categoryPercentage: 0.92, barPercentage: 0.92, minBarLength: 2
        }]
      },
      options: {
        scales: {
          x: axis('staleness (steps or versions)', { grid: { display: false } }),
          y: axis('updates', log ? { type: 'logarithmic', min: 0.5, ticks: { callback: (v) => Number.isInteger(Math.log10(v)) ? compact(v) : '' } }
            : { beginAtZero: true, ticks: { callback: (v) => Number.isInteger(v) ? compact(v) : '' } })
        },
        plugins: { legend: { display: false }, tooltip: { callbacks: { title: (items) => 'staleness ' + items[0].label, label: (item) => plural(item.raw, 'update') } } }
      }
    });
    canvas.dataset.bars = made.getDatasetMeta(0).data.filter((bar) => bar.height > 0 || bar.base > bar.y).length;
  }

  // ---- grids of cells

  const ramps = {
    light: {
      blue: ['#e2edf7', '#a6cbe6', '#5fa2d0', '#1f6fae', '#0b3d75'],
      orange: ['#fbeedd', '#f9c88f', '#ea8a3c', '#b9500b', '#6b2703'],
      green: ['#def0e7', '#9fd3bb', '#4fab86', '#12765a', '#05432f']
    },
    dark: {
      blue: ['#20303f', '#25577f', '#3685bd', '#79bbe6', '#dceefb'],
      orange: ['#3a2b1e', '#7a4416', '#c26f22', '#f0a258', '#fde3c3'],
      green: ['#1f332c', '#1f614b', '#2f9573', '#70c9a8', '#d3f2e5']
    }
  };
  const isDark = () => color('card') !== '#ffffff';
  const rampOf = (hue) => ramps[isDark() ? 'dark' : 'light'][hue];
  const shade = (ramp, share) => {
    const at = Math.min(1, Math.max(0, share)) * (ramp.length - 1), i = Math.min(ramp.length - 2, Math.floor(at));
    const part = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
    return 'rgb(' + [0, 1, 2].map((k) => Math.round(part(ramp[i], k) + (at - i) * (part(ramp[i + 1], k) - part(ramp[i], k)))).join(',') + ')';
  };
  const isLightShade = (rgb) => {
    const [r, g, b] = rgb.match(/\d+/g).map(Number);
    return 0.3 * r + 0.59 * g + 0.11 * b > 120;
  };

  // spec(): {rows, columns, value(row, column) -> number or null, share(value) -> 0..1, hue,
  //   height(width) of the plot, rowTicks(height), columnTicks(width): [[position in cells, text]],
  //   rowTitle, columnTitle, onTop, inside(value) -> text, describe(row, column) -> text}
  function gridChart(canvas, readout, spec) {
    let place = null, cursor = null;
    const drawn = document.createElement('canvas');  // without the cursor
    const hint = readout.textContent = 'Point at a cell, or focus the chart and use the arrow keys.';
    const draw = () => {
      const s = spec(), scale = devicePixelRatio || 1;
      const width = canvas.parentElement.clientWidth;
      const context = canvas.getContext('2d');
      const font = `12px ${getComputedStyle(document.body).fontFamily}`;
      context.font = font;
      const widest = Math.max(...s.rowTicks(200).map(([, label]) => context.measureText(label).width));
      const left = Math.ceil(widest) + 28, bottom = s.onTop ? 6 : 40, top = s.onTop ? 40 : 6;
      const w = width - left - 8, h = s.height(w);
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round((h + top + bottom) * scale);
      canvas.style.height = (h + top + bottom) + 'px';
      context.scale(scale, scale);
      context.font = font;
      place = { left, top, w, h, ...s };
      const snap = (value) => Math.round(value * scale) / scale;
      const cell = (row, column) => {
        const x = snap(left + column * w / s.columns), y = snap(top + row * h / s.rows);
        return [x, y, Math.max(1 / scale, snap(left + (column + 1) * w / s.columns) - x),
          Math.max(1 / scale, snap(top + (row + 1) * h / s.rows) - y)];
      };
      place.cell = cell;
      context.fillStyle = color('empty');
      context.fillRect(left, top, w, h);
      const ramp = rampOf(s.hue), gap = Math.min(w / s.columns, h / s.rows) >= 14 ? 1 : 0;
      let cells = 0;
      for (let row = 0; row < s.rows; ++row)
        for (let column = 0; column < s.columns; ++column) {
          const value = s.value(row, column);
          if (!known(value)) continue;
          ++cells;
          const [x, y, cw, ch] = cell(row, column), fill = shade(ramp, s.share(value));
          context.fillStyle = fill;
          context.fillRect(x, y, cw - (cw > 14 ? gap : 0), ch - gap);
          const label = s.inside && cw >= 40 && ch >= 18 ? s.inside(value) : '';
          if (label && context.measureText(label).width < cw - 6) {
            context.fillStyle = isLightShade(fill) ? '#10202e' : '#ffffff';
            context.textAlign = 'center';
            context.textBaseline = 'middle';
            context.fillText(label, x + cw / 2, y + ch / 2);
          }
        }
      canvas.dataset.cells = cells;
      drawGridAxes(context, place);
      drawn.width = canvas.width;
      drawn.height = canvas.height;
      drawn.getContext('2d').drawImage(canvas, 0, 0);
      drawCursor();
    };
    const drawCursor = () => {
      const context = canvas.getContext('2d');
      context.save();
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(drawn, 0, 0);
      context.restore();
      if (!cursor) return;
      const [x, y, cw, ch] = place.cell(...cursor);
      context.strokeStyle = color('text');
      context.lineWidth = 2;
      context.strokeRect(x - 1, y - 1, cw + 2, ch + 2);
    };
    const show = (row, column) => {
      cursor = [Math.min(place.rows - 1, Math.max(0, row)), Math.min(place.columns - 1, Math.max(0, column))];
      readout.textContent = place.describe(...cursor);
      drawCursor();
    };
    const leave = () => {
      cursor = null;
      readout.textContent = hint;
      drawCursor();
    };
    canvas.addEventListener('pointermove', (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left - place.left) / place.w * place.columns);
      const row = Math.floor((event.clientY - box.top - place.top) / place.h * place.rows);
      if (row >= 0 && row < place.rows && column >= 0 && column < place.columns) show(row, column);
      else if (cursor) leave();
    });
    canvas.addEventListener('pointerleave', () => { if (cursor && document.activeElement !== canvas) leave(); });
    canvas.addEventListener('blur', () => { if (cursor) leave(); });
    canvas.addEventListener('keydown', (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      if (cursor) show(cursor[0] + move[0], cursor[1] + move[1]);
      else show(0, 0);
    });
    figure(canvas, draw);
    return draw;
  }

  function drawGridAxes(context, { left, top, w, h, rows, columns, ...s }) {
    context.strokeStyle = color('line');
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, top - 0.5, w + 1, h + 1);
    context.fillStyle = color('soft');
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (const [at, label] of s.rowTicks(h)) context.fillText(label, left - 6, top + at / rows * h);
    context.textAlign = 'center';
    const line = s.onTop ? top - 11 : top + h + 12;
    for (const [at, label] of s.columnTicks(w)) {
      const half = context.measureText(label).width / 2;
      context.fillText(label, Math.min(left + w - half + 6, Math.max(left + half - 4, left + at / columns * w)), line);
    }
    context.fillText(s.columnTitle, left + w / 2, s.onTop ? top - 28 : top + h + 30);
    context.save();
    context.translate(9, top + h / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(s.rowTitle, 0, 0);
    context.restore();
  }

  // Whole numbers at the middle of their cells.
  const rankTicks = (ranks, perCell) => (pixels, each = 22) => {
    const step = Math.max(perCell, Math.ceil(niceStep(ranks, Math.max(1, pixels / each))));
    const ticks = [];
    for (let rank = 0; rank < ranks; rank += step) ticks.push([Math.floor(rank / perCell) + 0.5, String(rank)]);
    return ticks;
  };
  const ranksOf = (row, perRow, all) => {
    const first = row * perRow, last = Math.min(all, first + perRow) - 1;
    return first === last ? `rank ${first}` : `ranks ${first} to ${last}`;
  };

  const kOnlyValue = 0.6;  // where on the ramp a figure of one value is

  // Without `least` all cells have the same value.
  function drawScale(place, { hue, least, most, none }) {
    const bar = make('span', least ? 'bar' : 'one');
    bar.style.background = least ? `linear-gradient(to right, ${rampOf(hue).join(', ')})` : shade(rampOf(hue), kOnlyValue);
    place.replaceChildren(...(least ? [make('span', '', least)] : []), bar, make('span', '', most));
    const key = make('span', 'key');
    key.append(make('span', 'none'), none);
    place.append(key);
  }

  // ---- ranks over time

  let shown = 'staleness';

  function setUpHeat() {
    const heat = data.heat, canvas = $('heat-chart');
    const recorded = (layer) => layer.some(known);
    $('heat-text').textContent = `${plural(heat.ranks, 'rank')} over ${seconds(heat.end_s)}` +
      (heat.paused_s > 0 ? ` of training, without ${seconds(heat.paused_s)} between the run and its resumptions, ` : ', ') +
      `${plural(heat.bins, 'interval')} of ${seconds(heat.bin_s)}` +
      (heat.ranks_per_row > 1 ? `; a row has ${heat.ranks_per_row} ranks.` : '.');
    table($('heat-table'), data.ranks.length < heat.ranks ? `The ${data.ranks.length} ranks that waited longest` : 'Each rank',
      ['rank', 'steps', 'updates applied', 'mean staleness', 'computing', 'waiting for messages', 'waiting for batches'],
      () => data.ranks.map((r) => [String(r[0]), count(r[1]), count(r[2]), fixed(r[3], 2), seconds(r[4]), seconds(r[5]), seconds(r[6])]));
    if (heat.bins === 0) {
      for (const id of ['heat-of', 'heat-readout', 'heat-scale']) $(id).hidden = true;
      $('heat-table').hidden = data.records === 0;
      $('heat-text').textContent = '';
      empty(canvas.parentElement, 'The trace has no applied update and no wait.');
      return;
    }
    if (!recorded(heat.staleness)) {
      shown = 'waited';
      $('heat-of').querySelector('[value=waited]').checked = true;
    }
    const draw = gridChart(canvas, $('heat-readout'), heatSpec);
    redraws.push(drawHeatScale);
    drawHeatScale();
    for (const input of $('heat-of').querySelectorAll('input'))
      input.addEventListener('change', () => {
        shown = input.value;
        draw();
        drawHeatScale();
      });
  }

  const greatest = (list) => list.reduce((most, value) => known(value) ? Math.max(most, value) : most, 0);
  // Negative staleness: the receiver is behind the sender.
  const least = (list) => list.reduce((low, value) => known(value) ? Math.min(low, value) : low, 0);
  const heatRange = () => shown === 'waited' ? [0, 1] : [least(data.heat.staleness), greatest(data.heat.staleness)];

  function drawHeatScale() {
    const [low, high] = heatRange();
    drawScale($('heat-scale'), shown === 'waited'
      ? { hue: 'orange', least: 'waiting 0 %', most: '100 % of the time', none: 'no record' }
      : { hue: 'blue', least: `mean staleness ${number(low)}`, most: number(high), none: 'no update applied' });
  }

  function heatSpec() {
    const heat = data.heat, unit = timeUnit(heat.end_s), [low, high] = heatRange();
    const layer = heat[shown];
    $('heat-chart').setAttribute('aria-label', (shown === 'waited'
      ? 'Heat map of the share of time that each rank waits for messages'
      : `Heat map of the mean staleness by rank and time, up to ${number(high)}`) +
      `: ${plural(heat.rows, 'row')}, ${plural(heat.bins, 'interval')}. The table below has the sums of each rank.`);
    return {
      rows: heat.rows, columns: heat.bins, hue: shown === 'waited' ? 'orange' : 'blue',
      value: (row, column) => layer[row * heat.bins + column],
      share: (value) => high > low ? (value - low) / (high - low) : 0,
      height: () => heat.rows <= 16 ? 26 * heat.rows : Math.max(416, 2 * heat.rows),
      rowTicks: rankTicks(heat.ranks, heat.ranks_per_row),
      columnTicks: (width) => {
        const end = heat.bins * heat.bin_s / unit.s, step = niceStep(end, width / 64), ticks = [];
        for (let i = 0; i * step <= end * 1.0001; ++i)
          ticks.push([i * step * unit.s / heat.bin_s, number(i * step)]);
        return ticks;
      },
      rowTitle: 'rank', columnTitle: `time (${unit.name})`,
      describe: (row, column) => {
        const index = row * heat.bins + column, who = ranksOf(row, heat.ranks_per_row, heat.ranks);
        const stale = heat.staleness[index], waited = heat.waited[index];
        return `${who}, ${seconds(column * heat.bin_s)} to ${seconds((column + 1) * heat.bin_s)}: ` +
          (known(stale) ? `mean staleness ${number(stale)}, ` : 'no update applied, ') +
          (known(waited) ? `waiting ${percent(waited)} of the time (${seconds(waited * heat.bin_s)})` : 'no record');
      }
    };
  }

  // ---- traffic

  function setUpTraffic() {
    const matrix = data.matrix, canvas = $('traffic-chart');
    table($('traffic-table'), data.edges.length < data.edge_count
      ? `The ${data.edges.length} edges with the most bytes, of ${count(data.edge_count)}` : 'Each edge',
      ['from', 'to', 'messages', 'bytes', 'mean staleness', 'latency, p99'],
      () => data.edges.map((e) => [text(e[0]), text(e[1]), count(e[2]), bytes(e[3]), number(e[4]), seconds(e[5])]));
    if (matrix.cells.length === 0) {
      for (const id of ['traffic-table', 'traffic-readout', 'traffic-scale']) $(id).hidden = true;
      empty(canvas.parentElement, 'The trace has no message between ranks.');
      return;
    }
    const all = matrix.cells.reduce((sum, cell) => sum + cell[2], 0);
    $('traffic-text').textContent = `${bytes(all)} over ${plural(data.edge_count, 'edge')}. A row sends to the columns` +
      (matrix.ranks_per_cell > 1 ? `; a cell has ${matrix.ranks_per_cell} ranks a side.` : '.');
    const values = new Map(matrix.cells.map(([from, to, size]) => [from * matrix.side + to, size]));
    const sizes = matrix.cells.map((cell) => cell[2]).filter((size) => size > 0);
    const high = greatest(sizes), low = sizes.reduce((a, b) => Math.min(a, b), high);
    const log = high > 20 * low;
    canvas.setAttribute('aria-label', `Matrix of the bytes that each rank has sent to each other rank: ` +
      `${plural(matrix.cells.length, 'cell')} from ${bytes(low)} to ${bytes(high)}. The table below has the edges.`);
    const ranks = data.heat.ranks;
    const spec = () => ({
      rows: matrix.side, columns: matrix.side, hue: 'green',
      value: (row, column) => values.get(row * matrix.side + column),
      share: (size) => high === low ? kOnlyValue : log ? Math.log(Math.max(size, low) / low) / Math.log(high / low) : 0.15 + 0.85 * (size / high),
      height: (width) => Math.min(width, Math.max(60, 74 * matrix.side)),
      rowTicks: (height) => rankTicks(ranks, matrix.ranks_per_cell)(height, 34),
      columnTicks: (width) => rankTicks(ranks, matrix.ranks_per_cell)(width, 34),
      rowTitle: 'from rank', columnTitle: 'to rank', onTop: true, inside: bytes,
      describe: (row, column) => {
        const size = values.get(row * matrix.side + column), per = matrix.ranks_per_cell;
        return `${ranksOf(row, per, ranks)} to ${ranksOf(column, per, ranks)}: ${size === undefined ? 'nothing sent' : bytes(size)}`;
      }
    });
    gridChart(canvas, $('traffic-readout'), spec);
    const scale = () => drawScale($('traffic-scale'), {
      hue: 'green', least: high === low ? '' : log ? bytes(low) : '0 B', most: bytes(high) + (log ? ' (logarithmic)' : ''), none: 'nothing sent'
    });
    redraws.push(scale);
    scale();
  }

  // ---- slowest steps

  // Length of the union of [begin, end] pairs.
  const covered = (pairs) => {
    let sum = 0, until = -Infinity;
    for (const [begin, end] of [...pairs].sort((a, b) => a[0] - b[0])) {
      if (end <= until) continue;
      sum += end - Math.max(begin, until);
      until = end;
    }
    return sum;
  };
  const partsOf = (step) => {
    const of = (kinds) => covered(step.segments.filter((s) => kinds.includes(s[0])).map((s) => [s[1], s[2]]));
    return { compute: of(['compute']), data: of(['data']), wait: of(['wait']),
      other: Math.max(0, step.seconds - of(['compute', 'data', 'wait'])) };
  };
  const longestWait = (step) => step.segments.filter((s) => s[0] === 'wait' && s[3] >= 0)
    .sort((a, b) => (b[2] - b[1]) - (a[2] - a[1]))[0];
  const words = { compute: 'computes a gradient', data: 'waits for a batch', wait: 'waits for a message' };

  function drawSlowSteps() {
    const place = $('slow-body'), steps = data.slow_steps;
    place.dataset.drawn = 'true';
    place.dataset.lanes = steps.length;
    if (steps.length === 0) {
      $('slow-table').hidden = $('slow-legend').hidden = true;
      empty(place, 'The trace has no whole step.');
      return;
    }
    const longest = greatest(steps.map((step) => step.seconds)) || 1, unit = timeUnit(longest);
    const pixels = place.clientWidth / longest, list = make('ol', 'lanes');
    for (const step of steps) list.append(laneOf(step, longest, pixels));
    const axisLine = make('div', 'axis'), ticks = make('div');
    axisLine.setAttribute('aria-hidden', 'true');
    axisLine.append(make('div'), ticks);
    const end = longest / unit.s, each = niceStep(end, 5);
    for (let i = 0; i * each <= end * 1.0001; ++i) {
      const tick = make('span', i * each > 0.93 * end ? 'last' : '', number(i * each) + (i === 0 ? ' ' + unit.name : ''));
      tick.style.left = 100 * i * each / end + '%';
      ticks.append(tick);
    }
    place.replaceChildren(list, axisLine);
  }

  function setUpSlowSteps() {
    const steps = data.slow_steps;
    redraws.push(drawSlowSteps);
    drawSlowSteps();
    table($('slow-table'), 'Shares may overlap: a peer waits while its worker computes',
      ['rank', 'step', 'begins at', 'duration', 'computing', 'waiting for batches', 'waiting for messages', 'else', 'longest wait for'],
      () => steps.map((step) => {
        const parts = partsOf(step), wait = longestWait(step);
        return [String(step.rank), count(step.step) + (step.finished ? '' : ' (not ended)'), seconds(step.begin_s), seconds(step.seconds), seconds(parts.compute),
          seconds(parts.data), seconds(parts.wait), seconds(parts.other), wait ? `rank ${wait[3]}` : '–'];
      }));
  }

  function laneOf(step, longest, pixels) {
    const lane = make('li', 'lane'), what = make('div', 'what', `rank ${step.rank}, step ${count(step.step)}`);
    what.append(make('small', '', `${seconds(step.seconds)}${step.finished ? '' : ', not ended'}, at ${seconds(step.begin_s)}`));
    const strips = make('div', 'strips'), worker = make('div', 'strip'), peer = make('div', 'strip peer');
    const parts = partsOf(step), share = (part) => percent(step.seconds > 0 ? part / step.seconds : 0, 0);
    strips.setAttribute('role', 'img');
    strips.setAttribute('aria-label', `computing ${share(parts.compute)}, waiting for a batch ${share(parts.data)}, ` +
      `waiting for messages ${share(parts.wait)}, anything else ${share(parts.other)}`);
    for (const strip of [worker, peer]) {
      const ground = make('div', 'other');
      ground.style.width = 100 * step.seconds / longest + '%';
      strip.append(ground);
    }
    for (const [kind, begin, end, from] of step.segments) {
      const segment = make('div', kind);
      segment.style.left = 100 * begin / longest + '%';
      segment.style.width = 100 * (end - begin) / longest + '%';
      segment.title = `${words[kind]}${kind === 'wait' && from >= 0 ? ` of rank ${from}` : ''}: ${seconds(end - begin)}`;
      if (kind === 'wait' && from >= 0 && 0.7 * pixels * (end - begin) > 76)
        segment.append(make('span', '', `for rank ${from}`));
      (kind === 'wait' ? peer : worker).append(segment);
    }
    strips.append(worker, peer);
    lane.append(what, strips);
    return lane;
  }

  // ---- blame

  const who = (value) => known(value) && value >= 0 ? `rank ${value}` : 'a rank';
  const causeOf = (culprit) => {
    switch (culprit.kind) {
      case 'compute': return `${who(culprit.rank)} computes`;
      case 'link': return `messages from ${who(culprit.rank)} to ${who(culprit.peer)}`;
      case 'data': return `${who(culprit.rank)} waits for its batches`;
      case 'server': return `server ${who(culprit.rank)} is busy` + (known(culprit.peer) && culprit.peer >= 0 ? ` with ${who(culprit.peer)}` : '');
      case 'pause': return `the process of ${who(culprit.rank)} was paused`;
      case 'loss': return `${who(culprit.rank)} was lost`;
      default: return [text(culprit.kind), who(culprit.rank)].join(' ');
    }
  };

  function drawBlame() {
    const place = $('blame-body'), list = Array.isArray(data.culprits) ? data.culprits : [];
    place.dataset.drawn = 'true';
    place.dataset.culprits = list.length;
    if (list.length === 0) empty(place, 'No rank waited, or the trace does not tell for what.');
    else {
      const scroll = make('div', 'scroll'), element = make('table', 'causes');
      scroll.tabIndex = 0;
      scroll.setAttribute('role', 'region');
      scroll.setAttribute('aria-label', 'Causes of waits');
      const head = element.createTHead().insertRow(), body = element.createTBody();
      for (const [name, className] of [['cause', 'words'], ['time', ''], ['share', 'words']]) {
        const cell = make('th', className, name);
        cell.scope = 'col';
        head.append(cell);
      }
      const most = greatest(list.map((culprit) => culprit.share)) || 1;
      for (const culprit of list) {
        const row = body.insertRow(), share = make('td', 'share'), track = make('span', 'track');
        const bar = make('i'), label = make('b', '', percent(culprit.share));
        const part = known(culprit.share) ? Math.max(0, culprit.share) / most : 0;
        bar.style.width = 100 * part + '%';
        label.style.left = `calc(${100 * part}% + 6px)`;
        track.append(bar, label);
        share.append(track);
        row.append(make('td', 'words', causeOf(culprit)), make('td', '', seconds(culprit.seconds)), share);
      }
      scroll.append(element);
      place.replaceChildren(scroll);
    }
    if (data.chains.length > 0) {
      $('chains').textContent = data.chains.join('\n');
      $('chains').hidden = $('chains-title').hidden = false;
    }
  }

  // ---- ledger

  function drawLedger() {
    const place = $('ledger-body'), ledger = data.ledger;
    place.dataset.drawn = 'true';
    if (!ledger || !known(ledger.produced)) {
      empty(place, 'The trace does not count contributions.');
      return;
    }
    const parts = [['applied', 'in a model'], ['pending', 'not in a model yet'], ['dropped', 'given up by its rank'],
      ['destroyed', 'lost with a rank']];
    const element = make('table', 'sum'), body = element.createTBody();
    const row = (sign, name, value, meaning, className) => {
      const line = body.insertRow();
      line.className = className;
      const head = make('th', 'words', name);
      head.scope = 'row';
      line.append(make('td', 'sign', sign), head, make('td', '', count(value)), make('td', 'words', meaning));
    };
    let sum = 0;
    parts.forEach(([name, meaning], i) => {
      const value = known(ledger[name]) ? ledger[name] : 0;
      sum += value;
      row(i === 0 ? '' : '+', name, value, meaning, '');
    });
    row('=', 'sum', sum, '', 'total');
    row('', 'produced', ledger.produced, 'by the workers', '');
    const agrees = sum === ledger.produced, difference = Math.abs(sum - ledger.produced);
    place.dataset.agrees = String(agrees);
    const verdict = make('p', 'verdict ' + (agrees ? 'good' : 'bad'), agrees
      ? '✓ The sum agrees: every gradient is accounted for.'
      : `✗ The sum does not agree: ${plural(difference, 'contribution')} ${sum < ledger.produced ? 'missing' : 'too many'}.`);
    place.replaceChildren(element, verdict);
  }

  // ---- colours, size, print

  const redraw = () => redraws.forEach((run) => run());
  const prefersDark = matchMedia('(prefers-color-scheme: dark)');
  const setTheme = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    $('theme').textContent = isDark() ? 'Light colours' : 'Dark colours';
    redraw();
  };

  function setUpTheme() {
    $('theme').textContent = isDark() ? 'Light colours' : 'Dark colours';
    $('theme').addEventListener('click', () => setTheme(isDark() ? 'light' : 'dark'));
    prefersDark.addEventListener('change', () => setTheme(root.dataset.theme));
    let before;
    addEventListener('beforeprint', () => {
      before = root.dataset.theme;
      setTheme('light');
    });
    addEventListener('afterprint', () => setTheme(before));
    let width = innerWidth, due = 0;
    addEventListener('resize', () => {
      if (innerWidth === width) return;
      width = innerWidth;
      cancelAnimationFrame(due);
      due = requestAnimationFrame(redraw);
    });
  }

  // Which part of a canvas is not of the colour of its corner.
  function probe() {
    for (const canvas of document.querySelectorAll('canvas')) {
      const { width, height } = canvas;
      if (width === 0 || height === 0) continue;
      const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer);
      let ink = 0;
      for (const pixel of pixels) if (pixel !== pixels[0]) ++ink;
      canvas.dataset.ink = (ink / pixels.length).toFixed(4);
    }
    root.dataset.overflow = root.scrollWidth - root.clientWidth;
    root.dataset.requests = performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).length;
  }

  drawHeader();
  drawNotes();
  setUpTheme();
  setUpCurves();
  setUpStaleness();
  setUpHeat();
  setUpTraffic();
  setUpSlowSteps();
  drawBlame();
  drawLedger();
  root.dataset.ready = 'true';
  if (location.hash === '#probe') probe();
})();
