// Runs the module that differential_test.cpp wrote in another engine: one line per operation, "name hash traps".
//   node differential.mjs MODULE.wasm OPERATIONS.json
import {readFileSync} from 'node:fs';

const operations = JSON.parse(readFileSync(process.argv[3], 'utf8'));
let reply = null;
let instance = null;
const none = () => 0;
// Every other function of guest ABI v1 answers nothing.
const calls = {
    http_reply: (status, hp, hl, bp, bl) => {
        reply = new Uint8Array(instance.exports.memory.buffer.slice(bp, bp + bl));
        return 0;
    },
};
const actor = new Proxy(calls, {get: (known, name) => known[name] ?? none});
instance = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(process.argv[2])), {actor});

const lines = [];
operations.forEach((operation, index) => {
    let hash = 0x811c9dc5;
    let traps = 0;
    const add = (byte) => {
        hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
    };
    for (let a = 0; a < operation.first; ++a) {
        for (let b = 0; b < operation.second; ++b) {
            const at = instance.exports.actor_alloc(12);
            new Uint32Array(instance.exports.memory.buffer, at, 3).set([index, a, b]);
            try {
                instance.exports.actor_event(1, at, 12);
                reply.forEach(add);
            } catch (error) {
                if (!(error instanceof WebAssembly.RuntimeError)) throw error;
                ++traps;
                add(0xff);
            }
        }
    }
    lines.push(`${operation.name} ${hash} ${traps}`);
});
console.log(lines.join('\n'));
