// A server on the official TypeScript SDK. Needs its npm packages, in a folder of their own.
//
//     node ts_server.mjs FOLDER http PORT
//     node ts_server.mjs FOLDER stdio
//
// `sdk_server.py` has the same tools, resources and prompts.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, how, port] = process.argv.slice(2);
const { resolve } = createRequire(folder + '/package.json');
const load = (name) => import(pathToFileURL(resolve(name)));
const sdk = await load('@modelcontextprotocol/server');
const { McpServer, ResourceTemplate, acceptedContent, completable, createMcpHandler, inputRequired } = sdk;
const { z } = await load('zod');

const text = (value) => ({ content: [{ type: 'text', text: value }] });
const contents = (uri, value) => ({ contents: [{ uri, text: value }] });

const CAPABILITIES = { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true } };

// What publishes and what ends subscriptions depends on the transport.
let notify, hangUp;

function makeServer() {
    const server = new McpServer({ name: 'peer', version: '1' }, { capabilities: CAPABILITIES });
    const tool = (name, description, inputSchema, handler) =>
        server.registerTool(name, { description, inputSchema: z.object(inputSchema) }, handler);

    tool('echo', 'Say it back.', { text: z.string() }, async (given) => text(given.text));
    tool('pid', 'Say which process this is.', {}, async () => text(String(process.pid)));
    tool('progress', 'Report progress.', { steps: z.number() }, async ({ steps }, ctx) => {
        for (let step = 1; step <= steps; step++) {
            const progressToken = ctx.mcpReq._meta.progressToken;
            const params = { progressToken, progress: step, total: steps, message: `step ${step}` };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        }
        return text('done');
    });
    tool('publish', 'Say that a resource has changed.', { uri: z.string() }, async ({ uri }) => {
        await notify(server).resourceUpdated(uri);
        return text('published');
    });
    tool('touch_tools', 'Say that the list of tools has changed.', {}, async () => {
        await notify(server).toolsChanged();
        return text('published');
    });
    tool('ask', 'Ask three things.', {}, async (_, ctx) => {
        const given = ctx.mcpReq.inputResponses;
        if (given === undefined) {
            const ask = z.object({ name: z.string() });
            const question = { type: 'text', text: 'What is the capital of France?' };
            const messages = [{ role: 'user', content: question }];
            return inputRequired({
                inputRequests: {
                    name: inputRequired.elicit({ message: 'What is your name?', requestedSchema: ask }),
                    said: inputRequired.createMessage({ messages, maxTokens: 10 }),
                    roots: inputRequired.listRoots(),
                },
            });
        }
        const { name } = acceptedContent(given, 'name');
        return text(`${name}, ${given.said.content.text}, ${given.roots.roots.length}`);
    });
    tool('hang_up', 'End all subscriptions gracefully.', {}, async () => {
        setTimeout(hangUp, 50);
        return text('hung up');
    });

    server.registerResource('a', 'note://a', {}, async () => contents('note://a', 'text of a'));
    server.registerResource('slow', 'note://slow', {}, async () => {
        await new Promise((resolve) => setTimeout(resolve, 500));
        return contents('note://slow', 'text of slow');
    });
    const template = new ResourceTemplate('note://of/{name}', { list: undefined });
    server.registerResource('of', template, {}, async (uri, { name }) =>
        contents(uri.href, `text of ${name}`),
    );
    const name = completable(z.string(), () => ['Alice', 'Alan']);
    server.registerPrompt('greet', { argsSchema: z.object({ name }) }, (given) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Hello, ${given.name}!` } }],
    }));
    return server;
}

if (how === 'stdio') {
    const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
    notify = (server) => ({
        resourceUpdated: (uri) => server.server.sendResourceUpdated({ uri }),
        toolsChanged: () => server.server.sendToolListChanged(),
    });
    const handle = serveStdio(makeServer, { legacy: 'reject' });
    hangUp = () => handle.close();
} else {
    const { toNodeHandler } = await load('@modelcontextprotocol/node');
    // One that is closed serves nobody any more, so another takes its place.
    const makeHandler = () => createMcpHandler(makeServer, { legacy: 'reject', keepAliveMs: 1000 });
    let handler = makeHandler();
    notify = () => handler.notify;
    hangUp = () => {
        const closed = handler;
        handler = makeHandler();
        closed.close();
    };
    const serve = (request, response) => toNodeHandler(handler)(request, response);
    createServer(serve).listen({ host: '127.0.0.1', port: Number(port) });
}
