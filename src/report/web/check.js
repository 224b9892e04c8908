/* Whether the data have the types that the page draws. A run's directory may hold files of another
 * version, or files that somebody edited: wrong parts are named and left out, and the rest is drawn. */
"use strict";
(function () {
  /* A type is a function (value, path): null where the value is right, else the fault in words. */
  const quote = (x) => { const text = JSON.stringify(x); return text.length > 40 ? text.slice(0, 39) + "…" : text; };
  const fault = (path, what, x) => `${path} should be ${what}, and ` + (x === undefined ? "is missing" : "is " + quote(x));
  const plain = (what, test) => (x, path) => test(x) ? null : fault(path, what, x);
  const text = plain("a text", (x) => typeof x === "string");
  const number = plain("a number", (x) => typeof x === "number");
  const truth = plain("true or false", (x) => typeof x === "boolean");
  const maybe = (type) => (x, path) => x === null || x === undefined ? null : type(x, path);
  const either = (what, ...types) => (x, path) => types.some((t) => t(x, path) === null) ? null : fault(path, what, x);
  const first = (all) => { for (const wrong of all) if (wrong) return wrong; return null; };
  const isObject = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
  function* each(list, f) { for (const x of list) yield f(x); }
  const list = (of) => (x, path) => Array.isArray(x) ? first(each(x.keys(), (i) => of(x[i], `${path}[${i}]`)))
    : fault(path, "a list", x);
  const map = (of) => (x, path) => isObject(x) ? first(each(Object.keys(x), (k) => of(x[k], `${path}.${k}`)))
    : fault(path, "an object", x);
  /* Members that are not listed may be anything. */
  const object = (members) => (x, path) => isObject(x) ? first(each(Object.keys(members), (k) => members[k](x[k], `${path}.${k}`)))
    : fault(path, "an object", x);
  const also = (type, more) => (x, path) => type(x, path) || more(x, path);

  const inputsExist = (x, path) => {
    for (const [i, node] of x.nodes.entries())
      for (const from of node.inputs)
        if (!Number.isInteger(from) || from < 0 || from >= i) return `${path}.nodes[${i}].inputs names layer ${from}, which does not stand before it`;
    return null;
  };
  const network = also(object({ name: maybe(text), batch: maybe(number), nodes: list(object({ name: text, op: text, inputs: list(number),
    shape: list(number), parameters: maybe(number), flops: maybe(number),
    loops: maybe(object({ summed: maybe(map(number)), output: maybe(map(number)) })) })) }), inputsExist);
  const plan = object({ name: maybe(text), model: maybe(text), workers: maybe(number), stages: maybe(list(object({ workers: list(number) }))),
    layers: maybe(map(object({ stage: maybe(number), workers: maybe(list(number)),
      cut: maybe(map(either("a number or a list of numbers", number, list(number)))) }))) });
  const link = object({ name: text, bytes: maybe(number), bytes_per_s: maybe(number), share: maybe(number) });
  const nodes = list(object({ name: maybe(text), in: maybe(text), out: maybe(text),
    devices: list(object({ kind: maybe(text), in: maybe(text), out: maybe(text) })) }));
  const figures = { plan: maybe(text), model: maybe(text), data: maybe(text), batch: maybe(number), machine: maybe(text) };
  const curve = object({ batch: maybe(number), worth_workers: maybe(number), communication_overtakes: maybe(number),
    points: list(object({ workers: number, speedup: maybe(number), free_speedup: maybe(number), step_s: maybe(number),
      compute_s: maybe(number), communicate_s: maybe(number), fits: maybe(truth) })) });
  const timeline = object({ kind: text, plan: text, workers: number, span_s: number, quantum_s: number, names: list(text), counts: list(number), data: text });
  const column = list(maybe(number));
  const types = {
    network, plan,
    config: object({ model: maybe(text), data: maybe(text), plan: maybe(text), batch: maybe(number), workers: maybe(number),
      first_step: maybe(number), steps_per_epoch: maybe(number) }),
    versions: object({}),
    machine: object({ links: maybe(list(link)), nodes: maybe(nodes) }),
    prediction: object({ ...figures, n_workers: maybe(number), step_s: number, error_s: maybe(number), images_per_s: maybe(number),
      memory_bytes: maybe(number), bytes_moved: maybe(number), fits: maybe(truth), limit_bytes: maybe(number), limit_workers: maybe(number),
      advice: maybe(list(object({ change: text, memory_bytes: number }))), costs: maybe(object({ measured: maybe(number) })),
      workers: maybe(list(object({ compute_s: maybe(number), communicate_s: maybe(number), wait_s: maybe(number), memory: maybe(map(number)) }))),
      links: maybe(list(link)), nodes: maybe(nodes) }),
    search: object({ ...figures, best: maybe(text), workers: maybe(number), candidates: list(object({ name: text, family: maybe(text), step_s: maybe(number),
      error_s: maybe(number), images_per_s: maybe(number), memory_bytes: maybe(number), bytes_moved: maybe(number), fits: maybe(truth),
      workers: maybe(number), tried_s: maybe(number), plan: maybe(plan), timeline: maybe(timeline) })) }),
    limits: object({ ...figures, fixed: curve, growing: curve }),
    study: object({ points: list(object({ workers: maybe(number), batch: maybe(number), step_s: maybe(number), images_per_s: maybe(number) })) }),
    strategies: list(object({ name: text, bytes_moved: maybe(number), memory_bytes: maybe(number) })),
    done: object({ median_step_s: maybe(number), images_per_s: maybe(number), memory_bytes: maybe(number), bytes_moved: maybe(number),
      test_accuracy: maybe(number), predicted_step_s: maybe(number), predicted_error_s: maybe(number) }),
    steps: object({ step: column, loss: column, step_s: column, compute_s: column, communicate_s: column, wait_s: column }),
    epochs: list(object({ epoch: maybe(number), step: maybe(number), train_loss: maybe(number), test_loss: maybe(number),
      test_accuracy: maybe(number), seconds: maybe(number) })),
  };

  /* Takes out of a subject what the page cannot draw, and says so: sentences. */
  cleave.checkSubject = function (s) {
    const wrong = [];
    for (const [key, type] of Object.entries(types)) {
      if (s[key] === undefined) continue;
      const sentence = type(s[key], key);
      if (!sentence) continue;
      wrong.push(sentence + ": the report goes without " + key + ".");
      delete s[key];
      if (key === "epochs") s.epochs = []; /* what a run has that did not come to the end of one */
    }
    return wrong;
  };
})();
