// The chat in the frame. The page around it passes the session; every request goes from here to the service. Messages are shown
// as plain text only.
(() => {
	"use strict";
	const messagesPath = location.pathname.replace(/\/$/, "") + "/messages";
	const byID = (id) => document.getElementById(id);
	const log = byID("log"), list = byID("messages"), status = byID("status"), form = byID("compose");
	const text = byID("text"), send = byID("send");
	const names = { visitor: "You", assistant: "Assistant", human: "Staff" };
	const tries = 4;
	const offline = "There is no connection.", later = "The answer will appear here.";
	let token = "", parentOrigin = "", waiters = [], busy = false, visible = true, polling = 0;
	let unsent = null; // the message that was put back into the form, with its id: the service may have received it

	// --- the session -------------------------------------------------------------------------------------------------

	// The browser has checked the origin of the surrounding page (frame-ancestors). Its first answer shows which one it is.
	const ask = (message) => { if (parent !== window) parent.postMessage(message, parentOrigin || "*"); };

	function session() {
		return new Promise((resolve, reject) => {
			waiters.push({ resolve, reject });
			ask({ type: "svc-widget-session" });
			setTimeout(() => reject(new Error("This chat opens only inside its own site.")), 15000);
		});
	}

	addEventListener("message", (event) => {
		if (event.source !== parent || parent === window || !event.data) return;
		if (parentOrigin && event.origin !== parentOrigin) return;
		const settled = waiters;
		switch (event.data.type) {
		case "svc-widget-session":
			parentOrigin = event.origin;
			token = String(event.data.token || "");
			if (event.data.title) byID("title").textContent = document.title = String(event.data.title);
			waiters = [];
			settled.forEach((waiter) => waiter.resolve());
			break;
		case "svc-widget-refused":
			waiters = [];
			settled.forEach((waiter) => waiter.reject(new Error(event.data.message || "The chat can't be reached.")));
			break;
		case "svc-widget-opened":
			visible = true;
			text.focus();
			poll();
			break;
		case "svc-widget-closed":
			visible = false;
			break;
		}
	});

	// call sends a request to the service, and repeats it once with a new session if the old one has ended.
	async function call(options) {
		for (let fresh = false; ; fresh = true) {
			if (!token || fresh) await session();
			const answer = await fetch(messagesPath, {
				...options, credentials: "omit",
				headers: { "Authorization": "Bearer " + token, "Content-Type": "application/json" },
			});
			if (answer.status !== 401 || fresh) return answer;
		}
	}

	// --- what is shown -----------------------------------------------------------------------------------------------

	function line(id, author) {
		let item = list.querySelector('[data-id="' + CSS.escape(id) + '"]');
		if (item) return item.querySelector(".said");
		item = document.createElement("li");
		item.dataset.id = id;
		item.className = author === "visitor" ? "mine" : "theirs";
		const who = document.createElement("span"), said = document.createElement("span");
		who.className = "who";
		who.textContent = names[author] || author;
		said.className = "said";
		item.append(who, said);
		list.append(item);
		return said;
	}

	const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
	const toEnd = () => { log.scrollTop = log.scrollHeight; };

	function say(words, bad) {
		status.textContent = words;
		status.className = bad ? "bad" : "";
	}

	// show updates the list to the service's state and leaves unchanged elements in place.
	function show(messages) {
		const follow = atEnd(), wanted = new Set(messages.map((m) => m.id));
		for (const item of [...list.children]) {
			if (!wanted.has(item.dataset.id) && item.dataset.pending === undefined) item.remove();
		}
		let before = null;
		for (const m of messages) {
			const said = line(m.id, m.author), item = said.closest("li");
			delete item.dataset.pending;
			if (said.textContent !== m.text) said.textContent = m.text;
			const next = before ? before.nextElementSibling : list.firstElementChild;
			if (next !== item) list.insertBefore(item, next);
			before = item;
		}
		if (status.textContent === later && messages.length && messages[messages.length - 1].author !== "visitor") say("");
		if (follow) toEnd();
	}

	async function refresh() {
		const answer = await call({ method: "GET" });
		if (!answer.ok) throw new Error(await refusal(answer));
		show((await answer.json()).data);
	}

	async function refusal(answer) {
		try { return (await answer.json()).error.message; } catch { return "Something went wrong."; }
	}

	// --- writing -----------------------------------------------------------------------------------------------------

	const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

	// deliver sends a message under its own id until the service has accepted it, and shows the answer. It throws only while the
	// message may not have been accepted.
	async function deliver(id, words) {
		for (let attempt = 1; ; attempt++) {
			let answer;
			try {
				answer = await call({ method: "POST", body: JSON.stringify({ id, text: words }) });
			} catch (fault) {
				if (!(fault instanceof TypeError) || attempt === tries) throw fault;
				await pause(1000 * attempt);
				continue;
			}
			if (answer.ok) return taken(id, answer);
			const wait = Number(answer.headers.get("Retry-After")), message = await refusal(answer);
			if (!wait || attempt === tries) throw new Error(message);
			say(message, true);
			await pause(1000 * wait);
		}
	}

	// taken shows the answer to a message that the service has accepted. After a failure here the message must not be sent again:
	// the stored answer comes later.
	async function taken(id, answer) {
		try {
			const notice = answer.status === 202 ? (await answer.json()).notice : await read(id, answer);
			await refresh();
			return notice;
		} catch {
			return later;
		}
	}

	// read shows a stream in the form of /v1. It ignores a stream that breaks off: the stored answer comes later.
	async function read(id, answer) {
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		const live = "answer-" + id;
		let said = null, rest = "", complete = false;
		try {
			for (;;) {
				const { done, value } = await reader.read();
				if (done) break;
				const events = (rest + value).split("\n\n");
				rest = events.pop();
				for (const event of events) {
					const data = event.replace(/^data: /, "");
					if (data === "[DONE]") { complete = true; continue; }
					const chunk = JSON.parse(data);
					const piece = chunk.choices && chunk.choices[0] && chunk.choices[0].delta.content;
					if (!piece) continue;
					if (!said) {
						said = line(live, "assistant");
						said.closest("li").dataset.pending = "";
						log.setAttribute("aria-busy", "true");
					}
					const follow = atEnd();
					said.textContent += piece;
					if (follow) toEnd();
				}
			}
		} catch { /* the connection broke */ }
		log.removeAttribute("aria-busy");
		if (said) delete said.closest("li").dataset.pending; // until the list has the stored answer
		return complete ? "" : later;
	}

	function newID() {
		if (crypto.randomUUID) return crypto.randomUUID();
		return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
	}

	async function submit(words) {
		const id = unsent && unsent.words === words ? unsent.id : newID();
		unsent = null;
		const said = line(id, "visitor");
		said.textContent = words;
		said.closest("li").dataset.pending = "";
		toEnd();
		say("Sending …");
		try {
			say(await deliver(id, words));
		} catch (fault) {
			said.closest("li").remove();
			unsent = { id, words };
			if (!text.value) text.value = words; // the text isn't lost
			say(fault instanceof TypeError ? offline + " Try again." : fault.message, true);
		}
	}

	form.addEventListener("submit", async (event) => {
		event.preventDefault();
		const words = text.value.trim();
		if (busy || !words) return;
		busy = true;
		send.setAttribute("aria-disabled", "true");
		text.value = "";
		await submit(words);
		busy = false;
		send.removeAttribute("aria-disabled");
		text.focus();
	});
	text.addEventListener("keydown", (event) => {
		if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
			event.preventDefault();
			form.requestSubmit();
		}
	});
	const close = () => ask({ type: "svc-widget-close" });
	byID("close").addEventListener("click", close);
	addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });

	// --- answers that come by themselves -----------------------------------------------------------------------------

	async function poll() {
		clearTimeout(polling);
		if (visible && !document.hidden && !busy && token) {
			try {
				await refresh();
				if (status.textContent === offline) say("");
			} catch { /* the next look may succeed */ }
		}
		polling = setTimeout(poll, 3000);
	}
	document.addEventListener("visibilitychange", poll);

	say("Connecting …");
	refresh().then(() => { say(""); toEnd(); text.focus(); }, (fault) => say(fault instanceof TypeError ? offline : fault.message, true)).then(poll);
})();
