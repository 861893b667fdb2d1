// The playground: what was said stays in this page, and each message asks the assistant anew with all of it.

const form = document.getElementById("playground-ask");
const text = document.getElementById("playground-ask-text");
const log = document.getElementById("playground-log");
const list = log.querySelector("ol");
const status = document.getElementById("playground-status");
const failure = document.getElementById("playground-ask-error");
const stop = document.getElementById("playground-stop");
const clear = document.getElementById("playground-clear");
const charged = document.getElementById("playground-charged");
const send = form.querySelector("button[type=submit]");

let said = []; // {role, content}, as the API takes it
let running = null; // the AbortController of the answer that is being made

const says = form.dataset; // in the page's language

// amount writes micros as a person reads them, exactly.
function amount(micros) {
	const digits = micros.toString().padStart(7, "0");
	const format = new Intl.NumberFormat(document.documentElement.lang, {
		...(says.currency ? { style: "currency", currency: says.currency, currencyDisplay: "narrowSymbol" } : { minimumFractionDigits: 2 }),
		maximumFractionDigits: 6,
	});
	const written = format.format(digits.slice(0, -6) + "." + digits.slice(-6));
	return says.currency ? written : says.credits.replace("%s", written);
}

// line adds a message to the log and returns where its text goes.
function line(direction, from) {
	const item = document.createElement("li");
	item.dataset.direction = direction;
	const who = document.createElement("p");
	who.className = "quiet";
	who.textContent = from;
	const words = document.createElement("p");
	words.className = "said";
	item.append(who, words);
	list.append(item);
	return { item, who, words };
}

// fail says why there is no answer, and puts back what was typed.
function fail(message, typed) {
	failure.textContent = message;
	failure.hidden = false;
	if (text.value === "") text.value = typed;
}

// events reads the data of a stream's events.
async function* events(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done) return;
		rest += value;
		const lines = rest.split("\n");
		rest = lines.pop();
		for (const one of lines) {
			if (one.startsWith("data: ")) yield one.slice(6);
		}
	}
}

// refusal is what an answer that isn't a stream says.
async function refusal(response) {
	if (response.status === 401) return says.ended;
	try {
		return (await response.json()).error.message;
	} catch {
		return says.failed;
	}
}

// charge shows what an answer cost.
function charge(svc, who) {
	const micros = BigInt(svc.charged_micros);
	const sum = BigInt(charged.dataset.micros) + micros;
	charged.dataset.micros = sum.toString();
	charged.textContent = amount(sum);
	who.textContent = svc.byok ? says.ownKey : says.assistant + ", " + amount(micros);
	who.dataset.micros = micros.toString();
}

// answer asks with everything that was said and shows the answer as it comes. It returns the answer's text, once it is whole.
async function answer(signal) {
	const response = await fetch(form.action, {
		method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ messages: said }), signal,
	});
	if (!response.ok || !(response.headers.get("Content-Type") || "").startsWith("text/event-stream")) {
		throw new Error(await refusal(response));
	}
	const { item, who, words } = line("out", says.assistant);
	try {
		for await (const data of events(response.body)) {
			if (data === "[DONE]") return words.textContent;
			const chunk = JSON.parse(data);
			if (chunk.error) throw new Error(chunk.error.message);
			if (chunk.svc) charge(chunk.svc, who);
			for (const choice of chunk.choices) words.textContent += choice.delta.content || "";
			item.scrollIntoView({ block: "nearest" });
		}
	} catch (error) {
		who.textContent = says.broken;
		throw error;
	}
	who.textContent = says.broken;
	throw new Error(says.broke);
}

function busy(on) {
	log.setAttribute("aria-busy", String(on)); // the answer is read out as a whole
	send.disabled = on;
	stop.hidden = !on;
	status.textContent = on ? says.writing : "";
}

async function ask() {
	const typed = text.value.trim();
	if (running || typed === "") return;
	failure.hidden = true;
	const mine = line("in", says.you);
	mine.words.textContent = typed;
	text.value = "";
	said.push({ role: "user", content: typed });
	const asked = (running = new AbortController());
	busy(true);
	try {
		const words = await answer(asked.signal);
		if (words) said.push({ role: "assistant", content: words });
	} catch (error) {
		if (asked !== running) return; // started again meanwhile
		said.pop();
		mine.who.textContent = says.notAnswered;
		fail(error.name === "AbortError" ? says.stopped : error.message, typed);
	} finally {
		if (asked === running) {
			running = null;
			busy(false);
			text.focus();
		}
	}
}

form.addEventListener("submit", (event) => {
	event.preventDefault();
	ask();
});

text.addEventListener("keydown", (event) => {
	if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
		event.preventDefault();
		ask();
	}
});

stop.addEventListener("click", () => running?.abort());

clear.addEventListener("click", () => {
	const old = running;
	running = null;
	old?.abort();
	said = [];
	list.replaceChildren();
	failure.hidden = true;
	busy(false);
	text.focus();
});
