// Trying a call: one form moves to the operation that is tried. The key stays in the form's field: it goes into one header of
// calls to this server, is stored nowhere, and is gone when the page is left.

const form = document.getElementById("try");
const key = document.getElementById("try-key");
const fields = document.getElementById("try-fields");
const stop = document.getElementById("try-stop");
const send = form.querySelector("button:not([type])");
const longest = 256 * 1024; // characters of an answer that are shown

let place = null; // the part of the operation that has the form
let running = null; // the AbortController of the call that runs

// close puts the form away.
function close() {
	running?.abort();
	place?.querySelector("button").setAttribute("aria-expanded", "false");
	place = null;
	form.hidden = true;
}

// open moves the form to an operation, with the operation's fields.
function open(target) {
	close();
	place = target;
	const button = place.querySelector("button");
	fields.replaceChildren(place.querySelector("template").content.cloneNode(true));
	button.setAttribute("aria-expanded", "true");
	button.after(form);
	form.hidden = false;
	(key.value === "" ? key : (fields.querySelector("[data-in]") ?? send)).focus();
}

// request returns what the fields say: an address of this server, and the options of fetch.
function request() {
	let path = place.dataset.path;
	const query = new URLSearchParams();
	const headers = new Headers({ Authorization: "Bearer " + key.value.trim() });
	let body;
	for (const field of fields.querySelectorAll("[data-in]")) {
		const { in: where, name } = field.dataset;
		if (where === "body") {
			body = field.value;
			headers.set("Content-Type", "application/json");
		} else if (where === "path") {
			path = path.replace("{" + name + "}", encodeURIComponent(field.value));
		} else if (field.value !== "" && where === "query") {
			query.set(name, field.value);
		} else if (field.value !== "") {
			headers.set(name, field.value);
		}
	}
	if (query.toString() !== "") path += "?" + query;
	return [path, { method: place.dataset.method, headers, body, credentials: "omit", cache: "no-store", redirect: "error" }];
}

// answerOf returns where the answer of an operation is shown, empty.
function answerOf(target) {
	let part = target.querySelector(".answer");
	if (!part) {
		part = document.createElement("div");
		part.className = "answer";
		const status = document.createElement("p");
		status.setAttribute("role", "status");
		part.append(status, document.createElement("pre"));
		target.append(part);
	}
	const [status, text] = part.children;
	status.textContent = "Waiting for the answer.";
	text.replaceChildren();
	text.hidden = true;
	return { status, text };
}

// read shows a body as it comes, and JSON with indents when it is whole. It reports whether all of it is shown.
async function read(response, text) {
	if (!response.body) return true;
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let whole = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done) break;
		whole += value.slice(0, longest - whole.length);
		text.textContent = whole;
		text.hidden = false;
		if (whole.length === longest) {
			await reader.cancel();
			return false;
		}
	}
	if ((response.headers.get("Content-Type") ?? "").startsWith("application/json")) {
		text.textContent = JSON.stringify(JSON.parse(whole), null, 2);
	}
	return true;
}

async function call() {
	const mine = (running = new AbortController());
	const { status, text } = answerOf(place);
	send.disabled = true;
	stop.hidden = false;
	const begun = performance.now();
	try {
		const [address, options] = request();
		const response = await fetch(address, { ...options, signal: mine.signal });
		const heading = `${response.status}, request ${response.headers.get("X-Request-Id") ?? "without an id"}`;
		status.textContent = heading + ": reading the answer.";
		const all = await read(response, text);
		const took = Math.round(performance.now() - begun);
		status.textContent = `${heading}, ${took} ms` + (all ? "" : ". The answer is longer; its beginning is shown.");
	} catch (error) {
		status.textContent = error.name === "AbortError" ? "Stopped." : "The answer did not arrive whole. Check that the service runs, then send the call again.";
	} finally {
		if (running === mine) {
			running = null;
			send.disabled = false;
			stop.hidden = true;
		}
	}
}

for (const target of document.querySelectorAll(".try")) {
	const button = target.querySelector("button");
	button.hidden = false;
	button.addEventListener("click", () => (place === target ? close() : open(target)));
}
form.addEventListener("submit", (event) => {
	event.preventDefault();
	if (!running) call();
});
stop.addEventListener("click", () => running?.abort());
addEventListener("pagehide", () => {
	key.value = "";
});
