// Vercel's AI SDK over /v1/responses and /v1/messages, by the providers that it has for OpenAI and Anthropic: text,
// a stream, a tool whose result goes back, an object. Their schemas judge every event.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const name = process.argv[2];
const apiKey = process.env.OPENAI_API_KEY;
const baseURL = process.env.OPENAI_BASE_URL;
const weather = tool({
  inputSchema: z.strictObject({ city: z.enum(["Oslo", "Rome"]) }),
  execute: async ({ city }) => `rain in ${city}`,
});
const called = { toolChoice: { type: "tool", toolName: "weather" } };
const judgement = z.strictObject({ verdict: z.enum(["kept", "broken"]) });

// Without `store: false` it sends earlier items by their ids, which nothing here keeps.
const unstored = { providerOptions: { openai: { store: false } } };

async function tried(model, own) {
  const asked = { model, prompt: "What is TTFT?", temperature: 0, maxOutputTokens: 24, maxRetries: 0, ...own };
  const errors = [];
  const whole = await generateText(asked);
  const stream = streamText({ ...asked, onError: ({ error }) => errors.push(String(error)) });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  const loop = streamText({
    ...asked,
    maxOutputTokens: 64,
    tools: { weather },
    stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => (stepNumber === 0 ? called : { toolChoice: "none" }),
    onError: ({ error }) => errors.push(String(error)),
  });
  const steps = await loop.steps;
  const { object } = await generateObject({ ...asked, maxOutputTokens: 64, schema: judgement });
  return {
    texts: [whole.text, text],
    outputTokens: [whole.usage.outputTokens, (await stream.usage).outputTokens],
    results: steps.map((step) => step.toolResults.map((result) => result.output)),
    warnings: steps.flatMap((step) => step.warnings ?? []),
    verdict: typeof object.verdict,
    errors,
  };
}

const responses = await tried(createOpenAI({ apiKey, baseURL }).responses(name), unstored);
const messages = await tried(createAnthropic({ apiKey, baseURL })(name), {});
console.log(JSON.stringify({ responses, messages }));
