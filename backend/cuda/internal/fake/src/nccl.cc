// A libnccl.so.2 beside the fake driver. Ranks are processes, or threads of one process
// with a device each. What a rank sends lies in a file until all have read it; a call on
// a stream begins when the stream gets to it, or when another rank waits for it, and ends
// when all ranks have begun it.
//
// Where the real library hangs or mixes up data, this one says why: ranks that make other
// calls, or calls of other lengths, in the same place have an asynchronous error. So has
// a rank one of whose peers has aborted or died, unless FAKENCCL_DETECT=0, which has it
// wait for ever, as a GPU does whose peer on the same machine is gone. FAKENCCL_FAULT=R:N
// has call N of rank R, from 0, fail with a system error. FAKENCCL_CALLS names a file that
// gets a line for each call that ends. FAKENCCL_VERSION is the version (22700).
//
// Sums are added up from the last rank to the first: an order that the real library may
// have, and Mezzo's tree has not.
#include "library.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma weak fakecuda_wait
#pragma weak fakecuda_begin
#pragma weak fakecuda_device
extern "C" int fakecuda_wait(void *stream, const char *call, const void *owner, std::function<int()> *work);
extern "C" void fakecuda_begin(const void *owner);
extern "C" int fakecuda_device();

enum { SUCCESS = 0, CUDA_ERROR = 1, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { AGAIN = 600 };
enum { UINT8 = 1, FLOAT16 = 6, FLOAT32 = 7, FLOAT64 = 8, BFLOAT16 = 9 }; // ncclDataType_t

struct Id { char path[128]; };

static size_t bytes_of(int type) {
	switch (type) {
	case 0: case UINT8: return 1;
	case FLOAT16: case BFLOAT16: return 2;
	case 2: case 3: case FLOAT32: return 4;
	case 4: case 5: case FLOAT64: return 8;
	}
	return 0;
}

// Transfer is a part of a call: what goes to a peer, or comes from one.
struct Transfer {
	int peer;
	char *at;
	size_t bytes;
	bool send;
};

struct Comm {
	std::string dir, error;
	int rank, size, device;
	std::atomic<int> asynchronous{0};
	std::atomic<bool> aborted{false};
	long posted = 0; // calls that were put on a stream
	std::atomic<long> begun{0}, done{0};
	std::vector<long> pids; // of the ranks

	std::string file(long call, int r) const { return dir + "/" + std::to_string(call) + "." + std::to_string(r); }
	std::string mark(const char *what, int r) const { return dir + "/" + what + "." + std::to_string(r); }
	void fail(int code, const std::string &text) {
		if (asynchronous) return;
		error = text;
		asynchronous = code;
	}
};

static std::mutex lock; // of comms
static std::set<Comm *> comms;

static bool exists(const std::string &path) {
	struct stat s;
	return stat(path.c_str(), &s) == 0;
}
static bool publish(const std::string &path, const std::string &text) {
	static std::atomic<int> number;
	const std::string aside = path + ".tmp" + std::to_string(getpid()) + "." + std::to_string(number++);
	FILE *f = fopen(aside.c_str(), "w");
	if (!f) return false;
	bool ok = fwrite(text.data(), 1, text.size(), f) == text.size();
	ok = fclose(f) == 0 && ok;
	return ok && rename(aside.c_str(), path.c_str()) == 0;
}
static bool load(const std::string &path, std::string &text) {
	FILE *f = fopen(path.c_str(), "r");
	if (!f) return false;
	char part[1 << 16];
	text.clear();
	for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) text.append(part, n);
	fclose(f);
	return true;
}

static bool detects() {
	const char *s = getenv("FAKENCCL_DETECT");
	return !s || strcmp(s, "0");
}

// lost reports whether a peer is gone.
static bool lost(Comm *c) {
	if (!detects()) return false;
	for (int r = 0; r < c->size; r++) {
		if (r == c->rank) continue;
		if (exists(c->mark("abort", r))) return c->fail(REMOTE_ERROR, "rank " + std::to_string(r) + " has aborted"), true;
		if (c->pids[r] != getpid() && kill((pid_t)c->pids[r], 0) && errno == ESRCH && !exists(c->mark("left", r)))
			return c->fail(REMOTE_ERROR, "rank " + std::to_string(r) + " has exited"), true;
	}
	return false;
}

// Call is a collective call, or a group of sends and receives. Copies of it that have
// not begun are calls of their own: a graph has one.
struct Call {
	Comm *c;
	const char *name;
	std::vector<Transfer> transfers;
	int type = 0;
	char *sum = nullptr; // of an AllReduce: where it goes
	size_t elements = 0;
	long number = -1;

	std::string header() const {
		std::string h = name;
		for (auto &t : transfers)
			if (t.send && !sum) h += " " + std::to_string(t.bytes);
		if (sum) h += " " + std::to_string(elements) + " of type " + std::to_string(type);
		return h;
	}
	// of what peer has sent: its header, and the part for this rank
	bool take(int peer, const std::string &text, std::string &header, const char *&part, size_t &bytes) const {
		size_t end = text.find('\n');
		header = text.substr(0, end);
		size_t at = end + 1;
		for (;;) {
			if (at + 16 > text.size()) return false;
			uint64_t to, n;
			memcpy(&to, &text[at], 8), memcpy(&n, &text[at + 8], 8);
			at += 16;
			if ((int)to == c->rank) {
				part = &text[at], bytes = n;
				return at + n <= text.size();
			}
			at += n;
		}
	}
	int operator()() {
		if (c->aborted) return SUCCESS; // the kernel ends and leaves what there was
		if (c->asynchronous) return AGAIN;
		if (number < 0) {
			number = c->begun++;
			if (const char *fault = getenv("FAKENCCL_FAULT")) {
				int r;
				long n;
				if (sscanf(fault, "%d:%ld", &r, &n) == 2 && r == c->rank && n == number) {
					c->fail(SYSTEM_ERROR, "an error on request");
					return AGAIN;
				}
			}
			std::string text = header() + "\n";
			for (auto &t : transfers) {
				if (!t.send) continue;
				uint64_t head[2] = {(uint64_t)t.peer, t.bytes};
				text.append((char *)head, 16);
				text.append(t.at, t.bytes);
			}
			if (!publish(c->file(number, c->rank), text)) c->fail(SYSTEM_ERROR, "cannot write to " + c->dir);
		}
		for (int r = 0; r < c->size; r++)
			if (!exists(c->file(number, r))) return lost(c), AGAIN;
		std::string mine = header();
		std::vector<std::string> texts(c->size);
		for (int r = 0; r < c->size; r++) {
			if (r == c->rank) continue;
			std::string theirs;
			const char *part;
			size_t bytes;
			if (!load(c->file(number, r), texts[r]) || !take(r, texts[r], theirs, part, bytes)) theirs = theirs.empty() ? "no call" : theirs + " without a part for this rank";
			if (theirs != mine) {
				c->fail(INVALID_USAGE, "call " + std::to_string(number) + ": this rank calls " + mine + ", rank " + std::to_string(r) + " calls " + theirs);
				return AGAIN;
			}
		}
		auto part_of = [&](int r) {
			std::string theirs;
			const char *part = nullptr;
			size_t bytes;
			if (r != c->rank) return take(r, texts[r], theirs, part, bytes), part;
			for (auto &t : transfers)
				if (t.send) part = t.at;
			return part;
		};
		if (sum) {
			std::vector<double> all(elements);
			for (int r = c->size - 1; r >= 0; r--)
				for (size_t i = 0; i < elements; i++) {
					const double x = read(part_of(r), type == FLOAT64 ? R64 : R32, i);
					all[i] = type == FLOAT64 ? all[i] + x : (float)all[i] + (float)x;
				}
			for (size_t i = 0; i < elements; i++) write(sum, type == FLOAT64 ? R64 : R32, i, all[i]);
		} else {
			for (auto &t : transfers)
				if (!t.send) memmove(t.at, part_of(t.peer), t.bytes);
		}
		if (number > 0) unlink(c->file(number - 1, c->rank).c_str()); // all have begun this one, so they have read that
		c->done++;
		if (const char *calls = getenv("FAKENCCL_CALLS"))
			if (FILE *f = fopen(calls, "a")) fprintf(f, "%d %ld %s\n", c->rank, number, mine.c_str()), fclose(f);
		return SUCCESS;
	}
};

// serve has calls begin that other ranks wait for.
static void serve() {
	for (;; usleep(500)) {
		std::vector<Comm *> due;
		{
			std::lock_guard<std::mutex> locked(lock);
			for (Comm *c : comms)
				for (int r = 0; r < c->size && !c->aborted; r++)
					if (r != c->rank && exists(c->file(c->begun, r))) {
						due.push_back(c);
						break;
					}
		}
		for (Comm *c : due) fakecuda_begin(c);
	}
}

API ncclGetVersion(int *v) {
	const char *s = getenv("FAKENCCL_VERSION");
	*v = s ? atoi(s) : 22700;
	return SUCCESS;
}
extern "C" __attribute__((visibility("default"))) const char *ncclGetErrorString(int code) {
	static const char *texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
	return code >= 0 && code < 8 ? texts[code] : "unknown result code";
}
static thread_local std::string last_error;
extern "C" __attribute__((visibility("default"))) const char *ncclGetLastError(Comm *c) {
	return c && c->asynchronous ? c->error.c_str() : last_error.c_str();
}
API ncclGetUniqueId(Id *id) {
	const char *tmp = getenv("TMPDIR");
	std::string path = std::string(tmp && *tmp ? tmp : "/tmp") + "/fakenccl-XXXXXX";
	if (path.size() >= sizeof id->path || !mkdtemp(&path[0])) return SYSTEM_ERROR;
	memset(id->path, 0, sizeof id->path);
	strcpy(id->path, path.c_str());
	return SUCCESS;
}
API ncclCommInitRank(Comm **out, int size, Id id, int rank) {
	if (size < 1 || rank < 0 || rank >= size || strnlen(id.path, sizeof id.path) == sizeof id.path) return INVALID_ARGUMENT;
	if (!fakecuda_device) return last_error = "no driver", CUDA_ERROR;
	Comm *c = new Comm;
	c->dir = id.path, c->rank = rank, c->size = size, c->device = fakecuda_device();
	c->pids.resize(size);
	if (!publish(c->mark("init", rank), std::to_string(getpid()) + " " + std::to_string(c->device))) return last_error = "cannot write to " + c->dir, SYSTEM_ERROR;
	std::map<int, int> devices;
	for (int r = 0; r < size; r++) {
		std::string text;
		while (!load(c->mark("init", r), text)) {
			for (int q = 0; q < r; q++)
				if (c->pids[q] && c->pids[q] != getpid() && kill((pid_t)c->pids[q], 0)) return last_error = "rank " + std::to_string(q) + " has exited", REMOTE_ERROR;
			usleep(1000);
		}
		int device;
		sscanf(text.c_str(), "%ld %d", &c->pids[r], &device);
		if (devices.count(device)) {
			last_error = "Duplicate GPU detected : rank " + std::to_string(r) + " and rank " + std::to_string(devices[device]) + " both on CUDA device " + std::to_string(device);
			return INVALID_USAGE;
		}
		devices[device] = r;
	}
	std::lock_guard<std::mutex> locked(lock);
	static bool serves;
	if (!serves) std::thread(serve).detach();
	serves = true;
	comms.insert(c);
	*out = c;
	return SUCCESS;
}
static void forget(Comm *c) { // not deleted: calls may still name it
	std::lock_guard<std::mutex> locked(lock);
	comms.erase(c);
	publish(c->mark("left", c->rank), "");
	for (int r = 0; r < c->size; r++)
		if (!exists(c->mark("left", r))) return;
	if (DIR *d = opendir(c->dir.c_str())) { // the last one cleans up
		while (dirent *e = readdir(d)) unlink((c->dir + "/" + e->d_name).c_str());
		closedir(d);
	}
	rmdir(c->dir.c_str());
}
API ncclCommDestroy(Comm *c) {
	forget(c);
	return SUCCESS;
}
API ncclCommAbort(Comm *c) {
	publish(c->mark("abort", c->rank), "");
	c->aborted = true;
	forget(c);
	return SUCCESS;
}
API ncclCommGetAsyncError(Comm *c, int *code) {
	lost(c);
	*code = c->asynchronous;
	return SUCCESS;
}

// Groups: what was called since the outermost begin, by communicator and stream.
static thread_local int depth;
static thread_local std::vector<std::pair<std::pair<Comm *, void *>, Transfer>> grouped;

static int submit(Comm *c, void *stream, const char *name, Call call) {
	if (c->device != fakecuda_device()) return last_error = "the current device is not the communicator's", INVALID_USAGE;
	if (c->aborted) return last_error = "the communicator was aborted", INVALID_USAGE;
	for (auto &t : call.transfers) {
		if (t.peer < 0 || t.peer >= c->size) return last_error = "no such peer", INVALID_ARGUMENT;
		if (t.bytes && !fakecuda_inside(t.at, t.bytes)) return last_error = "no memory of the device", INVALID_ARGUMENT;
	}
	c->posted++;
	call.c = c;
	call.name = name;
	std::function<int()> work = call;
	return fakecuda_wait(stream, name, c, &work) ? CUDA_ERROR : SUCCESS;
}
API ncclGroupStart() {
	depth++;
	return SUCCESS;
}
API ncclGroupEnd() {
	if (depth == 0) return INVALID_USAGE;
	if (--depth) return SUCCESS;
	auto all = std::move(grouped);
	grouped.clear();
	while (!all.empty()) {
		auto key = all.front().first;
		Call call{};
		for (size_t i = 0; i < all.size();) {
			if (all[i].first != key) {
				i++;
				continue;
			}
			call.transfers.push_back(all[i].second);
			all.erase(all.begin() + i);
		}
		if (int e = submit(key.first, key.second, "ncclSendRecv", call)) return e;
	}
	return SUCCESS;
}
static int transfer(void *at, size_t count, int type, int peer, Comm *c, void *stream, bool send) {
	if (!bytes_of(type)) return INVALID_ARGUMENT;
	grouped.push_back({{c, stream}, {peer, (char *)at, count * bytes_of(type), send}});
	if (depth) return SUCCESS;
	depth = 1;
	return ncclGroupEnd();
}
API ncclSend(const void *at, size_t count, int type, int peer, Comm *c, void *stream) { return transfer((void *)at, count, type, peer, c, stream, true); }
API ncclRecv(void *at, size_t count, int type, int peer, Comm *c, void *stream) { return transfer(at, count, type, peer, c, stream, false); }
API ncclAllGather(const void *send, void *recv, size_t count, int type, Comm *c, void *stream) {
	if (!bytes_of(type)) return INVALID_ARGUMENT;
	const size_t n = count * bytes_of(type);
	Call call{};
	for (int r = 0; r < c->size; r++) {
		call.transfers.push_back({r, (char *)send, n, true});
		call.transfers.push_back({r, (char *)recv + r * n, n, false});
	}
	return submit(c, stream, "ncclAllGather", call);
}
API ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, Comm *c, void *stream) {
	if ((type != FLOAT32 && type != FLOAT64) || op != 0) return INVALID_ARGUMENT; // all that Mezzo calls
	Call call{};
	call.sum = (char *)recv, call.elements = count, call.type = type;
	for (int r = 0; r < c->size; r++) call.transfers.push_back({r, (char *)send, count * bytes_of(type), true});
	if (!fakecuda_inside(recv, count * bytes_of(type))) return INVALID_ARGUMENT;
	return submit(c, stream, "ncclAllReduce", call);
}
