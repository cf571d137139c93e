'use strict';
// Every text of the run becomes the text of a node, never markup.
(() => {
  const kInterval = 1000;  // ms between two questions
  const kTimeout = 4000;  // ms for an answer
  const byId = (id) => document.getElementById(id);

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  const fixed = (value, digits) => value === null ? '–' : value.toFixed(digits);
  function scaled(value, unit) {
    if (value === null) return '–';
    const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
    let at = 0;
    while (Math.abs(value) >= 1000 && at < prefixes.length - 1) { value /= 1000; ++at; }
    const digits = at === 0 && (unit || Number.isInteger(value)) ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
    return value.toFixed(digits) + (prefixes[at] || unit ? ' ' : '') + prefixes[at] + (unit || '');
  }
  const count = (value) => value.toLocaleString('en-US');
  function time(seconds) {
    if (seconds === null) return '–';
    if (seconds < 1) return Math.round(seconds * 1000) + ' ms';
    if (seconds < 60) return seconds.toFixed(1) + ' s';
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return minutes + ' min ' + Math.floor(seconds % 60) + ' s';
    return Math.floor(minutes / 60) + ' h ' + (minutes % 60) + ' min';
  }

  function showTiles(status) {
    const gradients = status.contributions;
    const tiles = [
      ['running for', time(status.time_s)],
      ['epoch', fixed(status.epochs_done, 2) + ' of ' + fixed(status.epochs, 2)],
      ['samples/s', scaled(status.samples_per_s)],
      ['goodput', fixed(status.goodput, 3)],
      ['mean staleness', fixed(status.staleness.mean, 2)],
      ['greatest staleness', String(status.staleness.max)],
      ['gradients applied', count(gradients.applied) + ' of ' + count(gradients.produced)],
      ['dropped, destroyed', count(gradients.dropped) + ', ' + count(gradients.destroyed)],
      ['sent', scaled(status.bytes_sent, 'B')],
      ['view of the members', String(status.view)],
      ['processes', String(status.processes)],
      ['newest checkpoint', status.checkpoint === null ? 'none' : status.checkpoint.split('/').pop()],
    ];
    byId('tiles').replaceChildren(...tiles.map(([name, value]) => {
      const tile = element('div');
      tile.append(element('dt', name), element('dd', value));
      return tile;
    }));
  }

  function waitsFor(rank) {
    if (rank.waits_for.length === 0) return '';
    return rank.waits_for.slice(0, 3).map((one) => one.message).join('; ') +
        (rank.waits_for.length > 3 ? ' and ' + (rank.waits_for.length - 3) + ' more' : '');
  }

  function showRanks(status) {
    byId('ranks').tBodies[0].replaceChildren(...status.ranks.map((rank) => {
      const stalled = rank.state === 'no answer' || rank.state === 'lost';
      const row = element('tr', undefined, stalled ? 'stalled' : '');
      row.dataset.rank = rank.rank;
      row.dataset.state = rank.state;
      row.append(
          element('td', String(rank.rank)), element('td', String(rank.process)),
          element('td', rank.state, 'text'), element('td', count(rank.steps)),
          element('td', scaled(rank.steps_per_s)), element('td', scaled(rank.samples_per_s)),
          element('td', fixed(rank.loss, 4)), element('td', fixed(rank.staleness, 2)),
          element('td', scaled(rank.bytes_sent, 'B')),
          element('td', time(rank.silent_s === null ? rank.waits_s : rank.silent_s)),
          element('td', waitsFor(rank), 'text'));
      return row;
    }));
  }

  function showMatrix(status) {
    const ranks = status.ranks.map((rank) => rank.rank);
    const known = status.ranks.every((rank) => rank.sent_to !== undefined);
    byId('matrix-text').textContent =
        known ? 'Rows send, columns receive.' : 'Not kept for so many ranks.';
    if (!known) return byId('matrix').replaceChildren();
    const bytes = (from, to) => from.sent_to[to] || 0;
    const most = Math.max(1, ...status.ranks.flatMap((from) => ranks.map((to) => bytes(from, to))));
    const head = element('tr');
    head.append(element('th'), ...ranks.map((to) => element('th', '→ ' + to)));
    const rows = status.ranks.map((from) => {
      const row = element('tr');
      row.append(element('th', String(from.rank)));
      for (const to of ranks) {
        const sent = bytes(from, to);
        const cell = element('td', sent === 0 ? '' : scaled(sent, 'B'));
        if (sent > 0) cell.style.backgroundColor = `rgba(var(--cell), ${0.08 + 0.42 * sent / most})`;
        row.append(cell);
      }
      return row;
    });
    byId('matrix').replaceChildren(head, ...rows);
  }

  function showWaits(status) {
    const waits = status.waits.map((text) => element('li', text));
    byId('waits').replaceChildren(...(waits.length ? waits : [element('li', 'none', 'none')]));
  }

  function showEvents(status) {
    byId('events').replaceChildren(...status.events.slice().reverse().map((event) => {
      const line = element('li');
      line.append(element('span', time(event.time_s)), element('b', event.kind), event.text);
      return line;
    }));
    if (status.events.length === 0) byId('events').replaceChildren(element('li', 'none yet'));
  }

  function show(status) {
    const run = status.run;
    byId('where').textContent = `${run.out} on ${run.host}, process ${run.pid}`;
    byId('title').textContent = `${run.algorithm}: ${run.model} on ${run.data}`;
    document.title = `${run.algorithm} – Grapevine`;
    byId('stage').textContent = status.stopping ? 'stopping' : status.stage;
    byId('stage').className = 'badge';
    byId('problem').hidden = true;
    showTiles(status);
    showWaits(status);
    showRanks(status);
    showMatrix(status);
    showEvents(status);
    document.documentElement.dataset.ready = 'true';
  }

  // What is shown stays, and is marked as old.
  function fail(text) {
    byId('problem').textContent = text;
    byId('problem').hidden = false;
    byId('stage').textContent = 'no answer';
    byId('stage').className = 'badge old';
  }

  async function ask() {
    try {
      const answer = await fetch('status.json',
                                 {cache: 'no-store', signal: AbortSignal.timeout(kTimeout)});
      const body = await answer.json();
      answer.ok ? show(body) : fail(body.error);
    } catch (error) {
      fail('The run does not answer: it has ended, or it is stopped. The figures are its last ones.');
    }
    setTimeout(ask, kInterval);
  }
  ask();
})();
