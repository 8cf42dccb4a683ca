// Vercel's AI SDK with its provider for OpenAI-compatible servers: text, a stream, a tool, an object.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const paceline = createOpenAICompatible({
  name: "paceline",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = paceline(process.argv[2]);
const asked = { model, prompt: "What is the weather in Oslo?", temperature: 0, maxRetries: 0 };
const weather = tool({
  description: "The weather in a city.",
  inputSchema: z.strictObject({ city: z.enum(["Oslo", "Rome"]) }),
  execute: async ({ city }) => `rain in ${city}`,
});
const forced = {
  ...asked,
  tools: { weather },
  maxOutputTokens: 64,
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) =>
    stepNumber === 0 ? { toolChoice: { type: "tool", toolName: "weather" } } : { toolChoice: "none" },
};

const whole = await generateText({ ...asked, maxOutputTokens: 8 });
const stream = streamText({ ...asked, maxOutputTokens: 8, onError: ({ error }) => { throw error; } });
let text = "";
for await (const piece of stream.textStream) text += piece;
const called = await generateText(forced);
const streamed = streamText({ ...forced, onError: ({ error }) => { throw error; } });
const results = [];
for await (const part of streamed.fullStream) if (part.type === "tool-result") results.push(part.output);
const judged = await generateText({
  ...asked,
  maxOutputTokens: 64,
  output: Output.object({ schema: z.strictObject({ verdict: z.enum(["kept", "broken"]) }) }),
});

console.log(JSON.stringify({
  outputTokens: [whole.usage.outputTokens, (await stream.usage).outputTokens],
  texts: [whole.text, text],
  steps: called.steps.length,
  result: called.steps[0].toolResults[0].output,
  streamedResults: results,
  verdict: typeof judged.output.verdict,
}));
