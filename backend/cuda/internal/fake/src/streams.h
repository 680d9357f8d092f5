// Streams of the fake driver. Work does not run when it is put on a stream,
// but when something waits for it: who reads a result without waiting gets what
// was there before, and who writes over an operand too early spoils it.
//
// FAKECUDA_STREAMS says which streams run as early as their waits for events
// permit: 0 (the default) none, 1 the second, fourth … that was made, 2 the first,
// third …, 3 all. What is right under 0, 1 and 2 has the waits
// that it needs.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

typedef int CUresult;
typedef std::function<CUresult()> Work;

// A graph is what was captured.
typedef std::vector<Work> Graph;

struct Stream;

struct Event {
	uint64_t recorded = 0, passed = 0;
	Stream *on = nullptr; // of the last recording
};
typedef std::shared_ptr<Event> EventHandle;

// Item is work, the recording of an event, or the wait for one.
struct Item {
	Work work;
	EventHandle record, wait;
	uint64_t version;
	Stream *waits_on;
};

struct Stream {
	int number, device;
	std::deque<Item> queue;
	Graph *capturing = nullptr;
};

// One call of the driver runs at a time.
extern std::recursive_mutex driver_lock;

// put_work appends work, or notes it when the stream is being captured.
CUresult put_work(Stream *s, Work w);
void put_record(Stream *s, const EventHandle &e);
void put_wait(Stream *s, const EventHandle &e);

// drain does all that is on a stream, drain_all what is on any; reach does what
// comes before an event. They return the first error that any work had.
CUresult drain(Stream *s);
CUresult drain_all();
CUresult reach(const EventHandle &e);

// sticky is the first error that any work had, which calls return from then on.
CUresult sticky();

Stream *make_stream(int device);
void close_stream(Stream *s);
