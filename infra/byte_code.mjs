// Compiles the Python modules below a folder, with the Python that Pyodide is: CPython on WebAssembly, whose byte code is
// that of any CPython of its version. So the machine that deploys needs no such Python, only the Node.js of the CDK.
//
//     node infra/byte_code.mjs FOLDER WHERE_IT_WILL_LIE VERSION
import { loadPyodide } from "pyodide";

const [folder, place, version] = process.argv.slice(2);
const python = await loadPyodide({ stdout: console.error }); // where what went wrong is looked for
const found = python.runPython("import sys; '.'.join(map(str, sys.version_info[:2]))");
if (found !== version) {
  console.error(`package.json pins a Pyodide of Python ${found}, and byte code of Python ${version} is asked for`);
  process.exit(1);
}
python.mountNodeFS("/modules", folder);
python.globals.set("place", place);
const good = python.runPython(`
from compileall import compile_dir
from py_compile import PycInvalidationMode

# Python loads it without a look at the source: a zip file keeps no time that could be compared.
compile_dir("/modules", quiet=1, stripdir="/modules", prependdir=place, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
`);
process.exit(good ? 0 : 1);
