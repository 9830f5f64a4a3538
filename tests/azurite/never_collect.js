// Ten minutes after its start, the emulator begins to remove the content of deleted and replaced blobs. It looks through
// all content for each that it removes, and serves no request meanwhile: after the contract tests, for more than the 20 s
// that a client waits. Here it begins after 24 days, the longest time that a timer of Node.js has.
const constants = require("azurite/dist/src/blob/utils/constants");
if (!("DEFAULT_GC_INTERVAL_MS" in constants)) throw new Error("this release of the emulator names the interval otherwise");
constants.DEFAULT_GC_INTERVAL_MS = 2 ** 31 - 1;
