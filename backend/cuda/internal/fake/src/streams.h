// Streams of the fake driver. Work does not run when it is put on a stream,
// but when something waits for it: who reads a result without waiting gets what
// was there before, and who writes over an operand too early spoils it.
//
// FAKECUDA_STREAMS says which streams run as early as their waits for events
// permit: 0 (the default) none, 1 the second, fourth … that was made, 2 the first,
// third …, 3 all. What is right under 0, 1 and 2 has the waits
// that it needs. The streams of a graph but for the one that it is launched on count
// as well.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

typedef int CUresult;

// Work does something when a stream gets to it. AGAIN is the result of work that waits
// for another process or thread: the stream stays where it is.
typedef std::function<CUresult()> Work;
enum { AGAIN = 600 };

struct Stream;
struct Capture;

struct Event {
	uint64_t recorded = 0, passed = 0;
	Stream *on = nullptr; // of the last recording
	std::weak_ptr<Capture> capture; // in which it was recorded last
	bool captured = false;
	int number = 0; // in that capture
};
typedef std::shared_ptr<Event> EventHandle;

// Captured is a call that was captured: work, the recording of an event, or the wait
// for one. Events have numbers, branches too: 0 is the stream that the capture began on.
struct Captured {
	int branch;
	Work work;
	const void *owner;
	int record = -1, wait = -1;
};

// A graph is what was captured, in the order of the calls. A launch makes them again,
// with events of its own, on the stream and on one more for each other branch.
struct Graph {
	std::vector<Captured> calls;
	int branches = 1, events = 0;
	std::vector<Stream *> streams; // of the other branches, made at the first launch
};

// Capture is a capture in progress.
struct Capture {
	Graph *graph;
	std::vector<Stream *> branches;
};

// Item is work, the recording of an event, or the wait for one.
struct Item {
	Work work;
	const void *owner; // of work that waits for others
	EventHandle record, wait;
	uint64_t version;
	Stream *waits_on;
	bool begun = false;
};

struct Stream {
	int number, device;
	std::deque<Item> queue;
	std::shared_ptr<Capture> capturing;
	int branch = 0; // of the capture
};

// One call of the driver runs at a time.
extern std::recursive_mutex driver_lock;

// put_work appends work, or notes it when the stream is being captured.
CUresult put_work(Stream *s, Work w, const void *owner = nullptr);
void put_record(Stream *s, const EventHandle &e);
void put_wait(Stream *s, const EventHandle &e);

// launch puts what was captured on a stream.
CUresult launch(Graph *g, Stream *s);

// joined reports whether the stream that a capture began on waits for all others.
bool joined(const Capture &c);

// drain does all that is on a stream, drain_all what is on any of a device; reach does
// what comes before an event. They return the first error that any work had. While work
// waits for others they let go of the lock.
CUresult drain(Stream *s);
CUresult drain_all(int device);
CUresult reach(const EventHandle &e);

// begin does what comes before the first work of an owner that has not begun, and begins it.
void begin(const void *owner);

// sticky is the first error that any work had, which calls return from then on.
CUresult sticky();

Stream *make_stream(int device);
void close_stream(Stream *s);
