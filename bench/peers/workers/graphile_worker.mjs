// graphile-worker's side: `install`, `enqueue N` and `work`, run from a folder with node_modules of its own.
// Database URL and receiver from BENCH_URL, BENCH_TARGET.
import { makeWorkerUtils, run, Logger } from "graphile-worker";
import { Agent, request } from "undici";

const BODY = "x".repeat(512);
const url = process.env.BENCH_URL;
const target = process.env.BENCH_TARGET;
const CONCURRENT = 200;
const LOCAL_QUEUE = 500;
const BATCH_DELAY_MS = 0;
const ENQUEUE_BATCH = 1000;

const quiet = new Logger(() => () => {});
const [command, count] = process.argv.slice(2);

if (command === "work") {
  const dispatcher = new Agent({ connections: CONCURRENT, pipelining: 1 });
  await run({
    taskList: {
      deliver: async (payload, helpers) => {
        const headers = { "webhook-id": String(helpers.job.id) };
        const answer = await request(target, { method: "POST", body: payload.body, headers, dispatcher });
        await answer.body.dump();
        if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
      },
    },
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: CONCURRENT,
        maxPoolSize: 12,
        pollInterval: 100,
        localQueue: { size: LOCAL_QUEUE },
        completeJobBatchDelay: BATCH_DELAY_MS,
        failJobBatchDelay: BATCH_DELAY_MS,
        logger: quiet,
      },
    },
  });
} else {
  const utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
  await utils.migrate();
  if (command === "enqueue") {
    for (let done = 0; done < Number(count); done += ENQUEUE_BATCH) {
      const size = Math.min(ENQUEUE_BATCH, Number(count) - done);
      await utils.addJobs(Array.from({ length: size }, () => ({ identifier: "deliver", payload: { body: BODY } })));
    }
  }
  await utils.release();
}
