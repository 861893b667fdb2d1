// Puts the chat of one channel into a page:
//
//     <script src="https://…/widget/CHANNEL_ID/widget.js" data-title="Ask us" async></script>
//
// It gets the visitor's session, because only a request of this page carries the page's origin, and passes it to the page in the
// frame. It reads nothing else of this page.
(() => {
	"use strict";
	const script = document.currentScript;
	if (!script) return;
	const address = new URL(script.src);
	const page = address.origin + address.pathname.replace(/\/widget\.js$/, "");
	const title = script.dataset.title || "Chat with us";
	const storeKey = "svc-widget:" + page;
	let memory = "";

	const kept = () => {
		try { return localStorage.getItem(storeKey) || memory; } catch { return memory; }
	};
	const keep = (token) => {
		memory = token;
		try { localStorage.setItem(storeKey, token); } catch { /* a page may have no storage */ }
	};

	async function begin() {
		const answer = await fetch(page + "/session", {
			method: "POST", mode: "cors", credentials: "omit", referrerPolicy: "no-referrer",
			headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: kept() }),
		});
		const body = await answer.json();
		if (!answer.ok) throw new Error(body.error ? body.error.message : "No session.");
		keep(body.token);
		return body.token;
	}

	const button = document.createElement("button");
	const frame = document.createElement("iframe");
	const place = (element, style) => Object.assign(element.style, style);
	button.type = "button";
	button.id = "svc-widget-open";
	button.textContent = title;
	button.setAttribute("aria-expanded", "false");
	button.setAttribute("aria-controls", "svc-widget-frame");
	place(button, {
		position: "fixed", right: "16px", bottom: "16px", zIndex: "2147483000", minHeight: "48px", padding: "0 20px",
		border: "2px solid #ffffff", borderRadius: "24px", background: "#0b5cad", color: "#ffffff",
		font: "600 16px/1.2 system-ui, sans-serif", cursor: "pointer",
	});
	frame.id = "svc-widget-frame";
	frame.title = title;
	frame.hidden = true;
	place(frame, {
		position: "fixed", right: "16px", bottom: "16px", zIndex: "2147483001", width: "min(400px, calc(100vw - 32px))",
		height: "min(600px, calc(100vh - 32px))", border: "1px solid #8c959f", borderRadius: "12px", background: "Canvas",
		colorScheme: "light dark",
	});

	// The first message from the frame shows that its page is loaded.
	let there = false;
	const tell = (message) => { if (there) frame.contentWindow.postMessage(message, address.origin); };

	function open() {
		if (!frame.src) frame.src = page;
		frame.hidden = false;
		place(frame, { display: "block" });
		button.hidden = true;
		place(button, { display: "none" });
		button.setAttribute("aria-expanded", "true");
		frame.focus();
		tell({ type: "svc-widget-opened" });
	}

	function close() {
		frame.hidden = true;
		place(frame, { display: "none" });
		button.hidden = false;
		place(button, { display: "block" });
		button.setAttribute("aria-expanded", "false");
		button.focus();
		tell({ type: "svc-widget-closed" });
	}

	window.addEventListener("message", async (event) => {
		if (event.origin !== address.origin || event.source !== frame.contentWindow || !event.data) return;
		there = true;
		if (event.data.type === "svc-widget-close") close();
		if (event.data.type !== "svc-widget-session") return;
		try {
			tell({ type: "svc-widget-session", token: await begin(), title });
		} catch (fault) {
			tell({ type: "svc-widget-refused", message: fault instanceof TypeError ? "" : fault.message });
		}
	});
	button.addEventListener("click", open);
	place(frame, { display: "none" });

	const attach = () => document.body.append(button, frame);
	if (document.body) attach(); else addEventListener("DOMContentLoaded", attach);
})();
