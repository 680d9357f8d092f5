#include "streams.h"

#include <cstdint>
#include <cstdlib>
#include <set>
#include <unistd.h>

std::recursive_mutex driver_lock;

static std::set<Stream *> streams;
static CUresult failure; // sticks, as on a device

static bool early(const Stream *s) {
	const char *setting = getenv("FAKECUDA_STREAMS");
	int mode = setting ? atoi(setting) : 0;
	return mode == 3 || (mode == 1 && s->number % 2 == 1) || (mode == 2 && s->number % 2 == 0);
}

// step does the first item of a stream, or what that waits for. It returns false if that
// waits for others.
static bool step(Stream *s) {
	Item &i = s->queue.front();
	if (i.wait) {
		if (i.wait->passed < i.version) return !i.waits_on->queue.empty() && step(i.waits_on);
	} else if (i.record) {
		i.record->passed = i.version;
	} else if (!failure) {
		i.begun = true;
		CUresult r = i.work();
		if (r == AGAIN) return false;
		failure = r;
	}
	s->queue.pop_front();
	return true;
}

// run_early goes on with the streams that run as early as they may.
static void run_early() {
	for (bool progress = true; progress;) {
		progress = false;
		for (Stream *s : streams) {
			while (early(s) && !s->queue.empty() && !(s->queue.front().wait && s->queue.front().wait->passed < s->queue.front().version) && step(s)) progress = true;
		}
	}
}

// step_or_pause is step, or a moment in which others get the lock.
static void step_or_pause(Stream *s) {
	if (step(s)) {
		run_early();
		return;
	}
	driver_lock.unlock();
	usleep(50);
	driver_lock.lock();
}

static void put(Stream *s, Item i) {
	s->queue.push_back(std::move(i));
	while (s->queue.size() > 4096 && step(s)) {} // a device does not wait for ever
	run_early();
}

CUresult put_work(Stream *s, Work w, const void *owner) {
	if (s->capturing) {
		s->capturing->graph->calls.push_back({s->branch, std::move(w), owner});
		return 0;
	}
	put(s, {std::move(w), owner, nullptr, nullptr, 0, nullptr});
	return failure;
}

void put_record(Stream *s, const EventHandle &e) {
	if (s->capturing) {
		e->capture = s->capturing;
		e->captured = true;
		e->number = s->capturing->graph->events++;
		s->capturing->graph->calls.push_back({s->branch, nullptr, nullptr, e->number});
		return;
	}
	e->captured = false;
	e->recorded++;
	e->on = s;
	put(s, {nullptr, nullptr, e, nullptr, e->recorded, nullptr});
}

void put_wait(Stream *s, const EventHandle &e) {
	if (e->captured) {
		std::shared_ptr<Capture> c = e->capture.lock();
		if (!s->capturing) { // it takes part from now on
			s->capturing = c;
			s->branch = c->graph->branches++;
			c->branches.push_back(s);
		}
		c->graph->calls.push_back({s->branch, nullptr, nullptr, -1, e->number});
		return;
	}
	if (e->recorded) put(s, {nullptr, nullptr, nullptr, e, e->recorded, e->on});
}

CUresult launch(Graph *g, Stream *s) {
	while ((int)g->streams.size() < g->branches - 1) g->streams.push_back(make_stream(s->device));
	std::vector<EventHandle> events;
	for (int i = 0; i < g->events; i++) events.push_back(EventHandle(new Event));
	EventHandle begins(new Event);
	put_record(s, begins);
	for (Stream *b : g->streams) put_wait(b, begins);
	for (auto &c : g->calls) {
		Stream *on = c.branch ? g->streams[c.branch - 1] : s;
		if (c.record >= 0) put_record(on, events[c.record]);
		else if (c.wait >= 0) put_wait(on, events[c.wait]);
		else put_work(on, c.work, c.owner);
	}
	return failure;
}

bool joined(const Capture &c) {
	// A branch has joined if the last thing on it is a recording that a branch that has
	// joined waits for.
	std::vector<bool> in(c.graph->branches);
	std::vector<bool> awaited(c.graph->events);
	in[0] = true;
	for (auto i = c.graph->calls.rbegin(); i != c.graph->calls.rend(); ++i) {
		if (i->wait >= 0 && in[i->branch]) awaited[i->wait] = true;
		if (i->record >= 0) {
			if (awaited[i->record]) in[i->branch] = true;
		} else if (!in[i->branch]) {
			return false;
		}
	}
	return true;
}

CUresult drain(Stream *s) {
	while (!s->queue.empty()) step_or_pause(s);
	return failure;
}

CUresult drain_all(int device) {
	for (bool more = true; more;) {
		more = false;
		for (Stream *s : streams) {
			if (s->device != device || s->queue.empty()) continue;
			more = true;
			step_or_pause(s);
			break; // others may have changed the set
		}
	}
	return failure;
}

CUresult reach(const EventHandle &e) {
	uint64_t version = e->recorded;
	while (e->passed < version && !e->on->queue.empty()) step_or_pause(e->on);
	return failure;
}

void begin(const void *owner) {
	for (Stream *s : streams) {
		for (size_t k = 0; k < s->queue.size(); k++) {
			if (s->queue[k].owner != owner || s->queue[k].begun) continue;
			// what comes before it may take many steps, each of which may take the first item
			for (size_t left = k + 1; left > 0 && !s->queue.empty();) {
				size_t before = s->queue.size();
				if (!step(s)) return;
				if (s->queue.size() < before) left--;
			}
			run_early();
			return;
		}
	}
}

CUresult sticky() { return failure; }

Stream *make_stream(int device) {
	static int made;
	Stream *s = new Stream;
	s->number = made++;
	s->device = device;
	streams.insert(s);
	return s;
}

void close_stream(Stream *s) {
	drain(s);
	streams.erase(s);
	delete s;
}
