// What pages can do beyond plain HTML: copying, asking before something is taken away, parts that follow what happens, and the
// code of a one-time link. Nothing depends on it but the playground, which has its own file.

// ms between two looks at a part that follows: rest times as long as the look took, so that an open page costs little of a
// server to which it costs much.
const every = 2000;
const atMost = 10000;
const rest = 10;

// What the script itself says stands in the page, in its language.
const dialog = document.getElementById("confirm");
const texts = dialog.dataset;

// Copy buttons are hidden where there is no script.
function prepare(part) {
	for (const button of part.querySelectorAll("button[data-copy]")) button.hidden = false;
	for (const table of part.querySelectorAll(".table")) makeScrollable(table);
}

// A table that is wider than the page can be scrolled with the keyboard.
function makeScrollable(table) {
	if (table.scrollWidth <= table.clientWidth) return;
	table.tabIndex = 0;
	table.setAttribute("role", "region");
	table.setAttribute("aria-label", texts.scrolls);
}

async function copy(button) {
	const source = document.querySelector(button.dataset.copy);
	const text = "value" in source ? source.value : source.textContent;
	try {
		await navigator.clipboard.writeText(text);
		button.textContent = texts.copied;
	} catch {
		getSelection().selectAllChildren(source);
		button.textContent = texts.selected;
	}
}

document.addEventListener("click", (event) => {
	const button = event.target.closest("button[data-copy]");
	if (button) copy(button);
});

// A form is sent once, and one with data-confirm after the question was answered.
const confirmed = new WeakSet();
const sent = new WeakSet();

document.addEventListener("submit", (event) => {
	const form = event.target;
	if (event.defaultPrevented || form.method === "dialog") return;
	if (form.dataset.confirm && !confirmed.has(form)) {
		event.preventDefault();
		ask(form, event.submitter);
		return;
	}
	if (sent.has(form)) event.preventDefault();
	else if (form.method === "post") sent.add(form);
});

// A page that is come back to is as it was.
addEventListener("pageshow", () => {
	for (const form of document.forms) {
		sent.delete(form);
		confirmed.delete(form);
	}
});

function ask(form, submitter) {
	document.getElementById("confirm-text").textContent = form.dataset.confirm;
	const yes = document.getElementById("confirm-yes");
	yes.textContent = submitter?.textContent || yes.textContent;
	yes.onclick = () => {
		dialog.close();
		confirmed.add(form);
		form.requestSubmit(submitter);
	};
	document.getElementById("confirm-no").onclick = () => dialog.close();
	dialog.showModal();
}

// follow keeps a part of the page as the server has it now, while the page is seen.
function follow(part) {
	let waiting;
	const look = async () => {
		clearTimeout(waiting);
		if (document.hidden) return; // visibilitychange looks again
		let next = every;
		const asked = performance.now();
		try {
			const answer = await fetch(part.dataset.live, { headers: { Accept: "text/html" }, redirect: "error" });
			if (answer.status === 401) {
				part.prepend(told(texts.ended));
				return;
			}
			if (!answer.ok) throw new Error(String(answer.status));
			const template = document.createElement("template");
			template.innerHTML = await answer.text();
			prepare(template.content);
			become(part, template.content);
			prepare(part);
			next = Math.min(atMost, Math.max(every, rest * (performance.now() - asked)));
		} catch {
			next = atMost;
		}
		waiting = setTimeout(look, next);
	};
	document.addEventListener("visibilitychange", look);
	waiting = setTimeout(look, every);
}

function told(text) {
	const line = document.createElement("p");
	line.className = "alert";
	line.setAttribute("role", "alert");
	line.textContent = text;
	return line;
}

// become makes the children of one node like those of another and leaves alone what is like it already: the focus, what was
// typed, and what a screen reader has said.
function become(now, then) {
	let at = now.firstChild;
	for (const wanted of [...then.childNodes]) {
		const known = wanted.id && [...now.children].find((child) => child.id === wanted.id);
		if (known && known !== at) now.insertBefore(known, at);
		const same = known || (at && !at.id && !wanted.id && at.nodeName === wanted.nodeName ? at : null);
		if (!same) {
			now.insertBefore(wanted, at);
			continue;
		}
		at = same.nextSibling;
		if (same.isEqualNode(wanted)) continue;
		if (same.nodeType !== Node.ELEMENT_NODE) {
			same.nodeValue = wanted.nodeValue;
			continue;
		}
		for (const { name } of [...same.attributes]) if (!wanted.hasAttribute(name)) same.removeAttribute(name);
		for (const { name, value } of wanted.attributes) if (same.getAttribute(name) !== value) same.setAttribute(name, value);
		become(same, wanted);
	}
	while (at) {
		const gone = at;
		at = at.nextSibling;
		gone.remove();
	}
}

// The code of a one-time link stands behind the #, which never leaves the browser by itself. It goes into the form and out of the
// address, so that it isn't in the history.
const token = document.getElementById("welcome-token");
if (token && location.hash.length > 1) {
	token.value = decodeURIComponent(location.hash.slice(1));
	history.replaceState(null, "", location.pathname);
	document.getElementById("welcome-password").focus();
}

prepare(document);
addEventListener("resize", () => prepare(document));
for (const part of document.querySelectorAll("[data-live]")) follow(part);
