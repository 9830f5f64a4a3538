// Builds the page into the folder that is given, or into that which the wheel holds. The same bytes every time.
import { build } from "esbuild";
import { copyFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = process.argv[2] ?? `${here}../layers/osqueue/python/osqueue/asgi/static`;

await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: "/* osqueue. Holds Preact (MIT) and uPlot (MIT). */" },
});
await copyFile(`${here}src/index.html`, `${target}/index.html`);
