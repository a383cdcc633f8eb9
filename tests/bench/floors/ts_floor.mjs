// A floor: the official TypeScript SDK, as its users run it on Node. Needs its npm packages.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

// The packages are in a folder of the benchmark's own, not beside this file.
const { resolve } = createRequire(process.argv[3] + '/package.json');
const load = (name) => import(pathToFileURL(resolve(name)));
const { McpServer, createMcpHandler } = await load('@modelcontextprotocol/server');
const { toNodeHandler } = await load('@modelcontextprotocol/node');
const { z } = await load('zod');

const text = (value) => ({ content: [{ type: 'text', text: value }] });

// Its handler makes a server for every request, by design.
const handler = createMcpHandler(
    () => {
        const server = new McpServer(
            { name: 'floor', version: '1' },
            { capabilities: { resources: { subscribe: true, listChanged: true } } },
        );
        server.registerTool(
            'echo',
            { description: 'Say it back.', inputSchema: z.object({ text: z.string() }) },
            async (given) => text(given.text),
        );
        server.registerTool(
            'publish',
            {
                description: 'Tell those who listen that resources have changed.',
                inputSchema: z.object({ uri: z.string(), count: z.number() }),
            },
            async ({ uri, count }) => {
                for (let n = 0; n < count; n++) {
                    handler.notify.resourceUpdated(count === 1 ? uri : `${uri}${n}`);
                }
                return text('published');
            },
        );
        return server;
    },
    { maxSubscriptions: 30000, legacy: 'reject' },
);

const server = createServer(toNodeHandler(handler));
server.keepAliveTimeout = 600_000;
server.listen({ host: '127.0.0.1', port: Number(process.argv[2]), backlog: 1024 });
