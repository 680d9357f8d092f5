#include "streams.h"

#include <cstdint>
#include <cstdlib>
#include <set>

std::recursive_mutex driver_lock;

static std::set<Stream *> streams;
static CUresult failure; // sticks, as on a device

static bool early(const Stream *s) {
	const char *setting = getenv("FAKECUDA_STREAMS");
	int mode = setting ? atoi(setting) : 0;
	return mode == 3 || (mode == 1 && s->number % 2 == 1) || (mode == 2 && s->number % 2 == 0);
}

static void run_until(Stream *s, const EventHandle &e, uint64_t version);

// step does the first item of a stream.
static void step(Stream *s) {
	Item i = std::move(s->queue.front());
	s->queue.pop_front();
	if (i.wait) {
		if (i.wait->passed < i.version) run_until(i.waits_on, i.wait, i.version);
	} else if (i.record) {
		i.record->passed = i.version;
	} else if (!failure) {
		failure = i.work();
	}
}

static void run_until(Stream *s, const EventHandle &e, uint64_t version) {
	while (e->passed < version && !s->queue.empty()) step(s);
}

// run_early goes on with the streams that run as early as they may.
static void run_early() {
	for (bool progress = true; progress;) {
		progress = false;
		for (Stream *s : streams) {
			while (early(s) && !s->queue.empty() && !(s->queue.front().wait && s->queue.front().wait->passed < s->queue.front().version)) {
				step(s);
				progress = true;
			}
		}
	}
}

static void put(Stream *s, Item i) {
	s->queue.push_back(std::move(i));
	while (s->queue.size() > 4096) step(s); // a device does not wait for ever
	run_early();
}

CUresult put_work(Stream *s, Work w) {
	if (s->capturing) {
		s->capturing->push_back(std::move(w));
		return 0;
	}
	put(s, {std::move(w), nullptr, nullptr, 0, nullptr});
	return failure;
}

void put_record(Stream *s, const EventHandle &e) {
	e->recorded++;
	e->on = s;
	put(s, {nullptr, e, nullptr, e->recorded, nullptr});
}

void put_wait(Stream *s, const EventHandle &e) {
	if (e->recorded) put(s, {nullptr, nullptr, e, e->recorded, e->on});
}

CUresult drain(Stream *s) {
	while (!s->queue.empty()) {
		step(s);
		run_early();
	}
	return failure;
}

CUresult drain_all() {
	for (Stream *s : streams) drain(s);
	return failure;
}

CUresult reach(const EventHandle &e) {
	uint64_t version = e->recorded;
	while (e->passed < version && !e->on->queue.empty()) {
		step(e->on);
		run_early();
	}
	return failure;
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
