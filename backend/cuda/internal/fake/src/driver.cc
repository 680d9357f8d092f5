// A libcuda.so.1 for tests on machines without a GPU. Memory is that of the
// host, with NaNs in fresh allocations and a page after each that faults;
// streams put work off until something waits for it (streams.h); kernels are
// run by emu.cc and ptx.cc, or by an interpreter that is set (interpreter.h), which
// counts no indices for FAKECUDA_LAUNCHES. Calls that are illegal while a stream is
// captured fail as the real ones do.
//
// FAKECUDA_VERSION (12040), FAKECUDA_INIT (0, what cuInit returns),
// FAKECUDA_DEVICES (1), and for each device, with commas between them,
// FAKECUDA_CAPABILITY (90), FAKECUDA_NAME (Fake GPU) and FAKECUDA_MEMORY (bytes,
// 1 GiB) describe the machine. FAKECUDA_LAUNCHES names a file that gets a line
// for each kernel that runs, with the number of indices that it read and of its calls
// of atomicCAS, FAKECUDA_LOADS one that gets the kind of each module. CUDA_FORCE_PTX_JIT=1 refuses cubins, as it does to the real driver.
//
// FAKECUDA_PAGEABLE=late reads the sources of copies that are not pinned when the
// stream gets there, as systems do whose GPU reads pageable memory itself.
// FAKECUDA_DRY=1 computes nothing and has memory without contents (reads are zeros), so
// that models of full size run; lines of FAKECUDA_LAUNCHES then have the grid, the
// block and the parameters behind a kernel's name, those of a library its call with the
// floating-point operations and the bytes of the operands, and "graph" and "end" stand around what is launched as one graph.
// FAKECUDA_FAULT has kernels, or calls of a library, of that name end with an
// illegal address: all that comes later fails with it.
// Several streams may be captured into one graph: see Graph in streams.h.
#include "cubin.h"
#include "interpreter.h"
#include "ptx.h"
#include "streams.h"
#undef blockIdx
#undef blockDim
#undef gridDim
#undef threadIdx

#include <algorithm>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
	NO_BINARY = 209, INVALID_PTX = 218, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
	CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907,
};

#define API extern "C" __attribute__((visibility("default"))) CUresult
#define LOCKED std::lock_guard<std::recursive_mutex> locked(driver_lock)

static long setting(const char *name, long otherwise) {
	const char *s = getenv(name);
	return s && *s ? atol(s) : otherwise;
}

// of_device is what a setting says of a device; the last word stands for more.
static std::string of_device(const char *name, const char *otherwise, int device) {
	const char *s = getenv(name);
	std::string all = s && *s ? s : otherwise;
	size_t at = 0, comma;
	while ((comma = all.find(',', at)) != std::string::npos && device-- > 0) at = comma + 1;
	return all.substr(at, all.find(',', at) - at);
}
static size_t memory_of(int device) { return atol(of_device("FAKECUDA_MEMORY", "1073741824", device).c_str()); }

// launches is the file that lists kernels as they run; note writes a line to it.
static FILE *launches() {
	static FILE *f = getenv("FAKECUDA_LAUNCHES") ? fopen(getenv("FAKECUDA_LAUNCHES"), "a") : nullptr;
	if (f) setlinebuf(f);
	return f;
}
static void note(const std::string &line) {
	if (FILE *list = launches()) fprintf(list, "%s\n", line.c_str());
}

static bool dry() {
	static const bool on = setting("FAKECUDA_DRY", 0);
	return on;
}

struct Allocation {
	char *map;
	size_t mapped, bytes;
	int device;
};
static std::map<char *, Allocation> allocations;
static uint64_t generation; // of allocations: how often they have changed
enum { MOST_DEVICES = 16 };
static size_t used[MOST_DEVICES];
static thread_local int current; // device
static thread_local bool capturing; // which makes calls illegal
static const char *running = "none";

static const size_t PAGE = 4096;

static void on_fault(int, siginfo_t *info, void *) {
	char text[400];
	int n = snprintf(text, sizeof text, "fakecuda: illegal address %p in kernel %s\n", info->si_addr, running);
	for (auto &a : allocations) {
		char *end = a.first + a.second.bytes;
		if ((char *)info->si_addr >= end && (char *)info->si_addr < end + 2 * PAGE)
			n += snprintf(text + n, sizeof text - n, "  %ld bytes past the end of an allocation of %zu bytes\n", (long)((char *)info->si_addr - end), a.second.bytes);
	}
	if (write(2, text, n)) {}
	_exit(77);
}

API cuInit(unsigned) {
	if (long e = setting("FAKECUDA_INIT", 0)) return (CUresult)e;
	return setting("FAKECUDA_DEVICES", 1) ? SUCCESS : NO_DEVICE;
}
API cuDriverGetVersion(int *v) { *v = (int)setting("FAKECUDA_VERSION", 12040); return SUCCESS; }
API cuDeviceGetCount(int *n) { *n = (int)setting("FAKECUDA_DEVICES", 1); return SUCCESS; }
API cuDeviceGet(int *d, int ordinal) { *d = ordinal; return ordinal < setting("FAKECUDA_DEVICES", 1) ? SUCCESS : INVALID_DEVICE; }
API cuDeviceGetName(char *name, int n, int d) { snprintf(name, n, "%s", of_device("FAKECUDA_NAME", "Fake GPU", d).c_str()); return SUCCESS; }
API cuDeviceTotalMem_v2(size_t *n, int d) { *n = memory_of(d); return SUCCESS; }
API cuDeviceGetAttribute(int *v, int attribute, int d) {
	int capability = atoi(of_device("FAKECUDA_CAPABILITY", "90", d).c_str());
	*v = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 16 ? 4 : 1024;
	return SUCCESS;
}
static int contexts[MOST_DEVICES];
API cuDevicePrimaryCtxRetain(void **c, int d) { *c = &contexts[d]; return SUCCESS; }
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuCtxSetCurrent(void *c) { current = (int)((int *)c - contexts); return SUCCESS; }

API cuGetErrorName(int e, const char **s) {
	*s = e == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : e == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : e == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : e == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" : "CUDA_ERROR";
	return SUCCESS;
}
API cuGetErrorString(int e, const char **s) {
	*s = e == OUT_OF_MEMORY ? "out of memory" : e == NO_DEVICE ? "no CUDA-capable device is detected" : "an error of the fake driver";
	return SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	LOCKED;
	if (capturing) return CAPTURE_UNSUPPORTED;
	if (CUresult e = sticky()) return e;
	if (n == 0) return INVALID_VALUE;
	if (used[current] + n > memory_of(current)) return OUT_OF_MEMORY;
	if (dry()) {
		static char *next = (char *)(1ull << 44);
		allocations[next] = {nullptr, 0, n, current};
		generation++;
		used[current] += n;
		*p = (CUdeviceptr)next;
		next += (n + 511) / 256 * 256;
		return SUCCESS;
	}
	size_t rounded = (n + 15) & ~(size_t)15, mapped = (rounded + PAGE - 1) / PAGE * PAGE + PAGE;
	char *m = (char *)mmap(0, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) return OUT_OF_MEMORY;
	mprotect(m + mapped - PAGE, PAGE, PROT_NONE);
	memset(m, 0xFF, mapped - PAGE);
	char *q = m + mapped - PAGE - rounded;
	allocations[q] = {m, mapped, n, current};
	generation++;
	used[current] += n;
	*p = (CUdeviceptr)q;
	return SUCCESS;
}
API cuMemFree_v2(CUdeviceptr p) { // waits for all work
	LOCKED;
	if (capturing) return CAPTURE_UNSUPPORTED;
	auto a = allocations.find((char *)p);
	if (a == allocations.end()) return INVALID_VALUE;
	if (CUresult e = drain_all(a->second.device)) return e;
	if (a->second.map) munmap(a->second.map, a->second.mapped);
	used[a->second.device] -= a->second.bytes;
	allocations.erase(a);
	generation++;
	return SUCCESS;
}
API cuMemGetInfo_v2(size_t *free, size_t *total) {
	LOCKED;
	*total = memory_of(current);
	*free = *total - used[current];
	return SUCCESS;
}

// Pinned memory: copies of it are put off like other work. Copies from other
// memory have read it (but see FAKECUDA_PAGEABLE), and copies to it are done, when
// the call returns.
static std::map<char *, size_t> pinned;
API cuMemHostAlloc(void **p, size_t n, unsigned) {
	LOCKED;
	if (capturing) return CAPTURE_UNSUPPORTED;
	*p = malloc(n ? n : 1);
	memset(*p, 0xFF, n);
	pinned[(char *)*p] = n;
	return SUCCESS;
}
API cuMemFreeHost(void *p) {
	LOCKED;
	if (capturing || !pinned.erase((char *)p)) return INVALID_VALUE;
	CUresult e = drain_all(current);
	free(p);
	return e;
}
static bool is_pinned(const void *p, size_t n) {
	auto a = pinned.upper_bound((char *)p);
	return a != pinned.begin() && (--a, (char *)p + n <= a->first + a->second);
}

static bool inside(CUdeviceptr p, size_t n) {
	auto a = allocations.upper_bound((char *)p);
	return a != allocations.begin() && (--a, (char *)p + n <= a->first + a->second.bytes);
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, void *s) {
	LOCKED;
	if (!inside(to, n)) return INVALID_VALUE;
	if (dry()) return put_work((Stream *)s, [] { note("copy"); return SUCCESS; });
	if (is_pinned(from, n)) return put_work((Stream *)s, [=] { memcpy((void *)to, from, n); return SUCCESS; });
	if (capturing) return CAPTURE_UNSUPPORTED;
	static const char *pageable = getenv("FAKECUDA_PAGEABLE");
	if (pageable && !strcmp(pageable, "late")) return put_work((Stream *)s, [=] { memcpy((void *)to, from, n); return SUCCESS; });
	std::vector<char> data((const char *)from, (const char *)from + n);
	return put_work((Stream *)s, [=] { memcpy((void *)to, data.data(), n); return SUCCESS; });
}
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, void *s) {
	LOCKED;
	if (!inside(from, n)) return INVALID_VALUE;
	if (capturing && !is_pinned(to, n)) return CAPTURE_UNSUPPORTED;
	if (dry()) return put_work((Stream *)s, [=] { note("copy"), memset(to, 0, n); return SUCCESS; });
	CUresult e = put_work((Stream *)s, [=] { memcpy(to, (void *)from, n); return SUCCESS; });
	return e || is_pinned(to, n) ? e : drain((Stream *)s);
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, void *s) {
	LOCKED;
	if (!inside(from, n) || !inside(to, n)) return INVALID_VALUE;
	if (dry()) return put_work((Stream *)s, [] { note("copy"); return SUCCESS; });
	return put_work((Stream *)s, [=] { memmove((void *)to, (void *)from, n); return SUCCESS; });
}
API cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, void *s) {
	LOCKED;
	if (!inside(to, n)) return INVALID_VALUE;
	if (dry()) return put_work((Stream *)s, [] { note("set"); return SUCCESS; });
	return put_work((Stream *)s, [=] { memset((void *)to, v, n); return SUCCESS; });
}

API cuMemsetD32Async(CUdeviceptr to, unsigned v, size_t n, void *s) {
	LOCKED;
	if (!inside(to, 4 * n)) return INVALID_VALUE;
	if (dry()) return put_work((Stream *)s, [] { note("set"); return SUCCESS; });
	return put_work((Stream *)s, [=] { std::fill_n((unsigned *)to, n, v); return SUCCESS; });
}

API cuStreamCreate(void **s, unsigned) {
	LOCKED;
	*s = make_stream(current);
	return SUCCESS;
}
API cuStreamDestroy_v2(void *s) {
	LOCKED;
	close_stream((Stream *)s);
	return SUCCESS;
}
API cuStreamSynchronize(void *s) {
	LOCKED;
	return capturing ? CAPTURE_UNSUPPORTED : drain((Stream *)s);
}
// Events by handle: a call with one that was destroyed crashes in the real driver.
static std::set<EventHandle *> events;
static bool dead(const char *call, void *e) {
	if (events.count((EventHandle *)e)) return false;
	fprintf(stderr, "fakecuda: %s of an event that was destroyed\n", call);
	return true;
}
API cuStreamWaitEvent(void *s, void *e, unsigned) {
	LOCKED;
	if (dead("cuStreamWaitEvent", e)) return INVALID_HANDLE;
	Event &event = **(EventHandle *)e;
	std::shared_ptr<Capture> capture = event.capture.lock();
	if (event.captured && !capture) return CAPTURED_EVENT; // that capture has ended
	if (((Stream *)s)->capturing && (!event.captured || capture != ((Stream *)s)->capturing)) return CAPTURE_ISOLATION;
	put_wait((Stream *)s, *(EventHandle *)e);
	return SUCCESS;
}
API cuEventCreate(void **e, unsigned) {
	LOCKED;
	*e = *events.insert(new EventHandle(new Event)).first;
	return SUCCESS;
}
API cuEventDestroy_v2(void *e) {
	LOCKED;
	if (dead("cuEventDestroy", e)) return INVALID_HANDLE;
	events.erase((EventHandle *)e); // not deleted: no other event gets its handle
	return SUCCESS;
}
API cuEventRecord(void *e, void *s) {
	LOCKED;
	if (dead("cuEventRecord", e)) return INVALID_HANDLE;
	put_record((Stream *)s, *(EventHandle *)e);
	return SUCCESS;
}
API cuEventSynchronize(void *e) {
	LOCKED;
	if (dead("cuEventSynchronize", e)) return INVALID_HANDLE;
	if ((*(EventHandle *)e)->captured) return CAPTURED_EVENT;
	return capturing ? CAPTURE_UNSUPPORTED : reach(*(EventHandle *)e);
}
API cuEventQuery(void *e) {
	LOCKED;
	if (dead("cuEventQuery", e)) return INVALID_HANDLE;
	if (capturing) return CAPTURE_UNSUPPORTED;
	Event &event = **(EventHandle *)e;
	if (event.captured) return CAPTURED_EVENT;
	return event.passed < event.recorded ? NOT_READY : SUCCESS;
}

API cuStreamBeginCapture_v2(void *s, int) {
	LOCKED;
	if (capturing || ((Stream *)s)->capturing) return ILLEGAL_STATE;
	((Stream *)s)->capturing.reset(new Capture{new Graph, {(Stream *)s}});
	((Stream *)s)->branch = 0;
	capturing = true;
	return SUCCESS;
}
API cuStreamEndCapture(void *s, void **g) {
	LOCKED;
	std::shared_ptr<Capture> c = ((Stream *)s)->capturing;
	if (!c || ((Stream *)s)->branch) return ILLEGAL_STATE;
	for (Stream *b : c->branches) b->capturing.reset();
	capturing = false;
	if (!joined(*c)) {
		delete c->graph;
		*g = nullptr;
		return CAPTURE_UNJOINED;
	}
	*g = c->graph;
	return SUCCESS;
}
API cuGraphDestroy(void *g) { delete (Graph *)g; return SUCCESS; }
API cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long) {
	LOCKED;
	if (capturing) return CAPTURE_UNSUPPORTED;
	*e = new Graph(*(Graph *)g);
	return SUCCESS;
}
API cuGraphExecDestroy(void *e) {
	LOCKED;
	CUresult r = drain_all(current);
	for (Stream *b : ((Graph *)e)->streams) close_stream(b);
	delete (Graph *)e;
	return r;
}
API cuGraphLaunch(void *e, void *s) {
	LOCKED;
	if (((Stream *)s)->device != current) return INVALID_HANDLE;
	if (dry()) put_work((Stream *)s, [] { note("graph"); return SUCCESS; });
	CUresult r = launch((Graph *)e, (Stream *)s);
	return dry() ? put_work((Stream *)s, [] { note("end"); return SUCCESS; }) : r;
}

// faults reports whether FAKECUDA_FAULT names a kernel or a call.
static bool faults(const std::string &name) {
	static const char *setting = getenv("FAKECUDA_FAULT");
	return setting && name == setting;
}

// What the fake libraries need: work for a stream, whether memory exists, and the
// current device. fakecuda_wait is for work that waits for other processes or threads:
// fakecuda_begin has the next such work of an owner begin.
extern "C" __attribute__((visibility("default"))) int fakecuda_submit(void *stream, const char *call, double operations, double bytes, Work *work) {
	LOCKED;
	if (((Stream *)stream)->device != current) return INVALID_HANDLE;
	if (dry()) return put_work((Stream *)stream, [=] { note(std::string(call) + " " + std::to_string((uint64_t)operations) + " " + std::to_string((uint64_t)bytes)); return SUCCESS; });
	return put_work((Stream *)stream, faults(call) ? [] { return (CUresult)ILLEGAL_ADDRESS; } : *work);
}
extern "C" __attribute__((visibility("default"))) int fakecuda_wait(void *stream, const char *call, const void *owner, Work *work) {
	LOCKED;
	if (((Stream *)stream)->device != current) return INVALID_HANDLE;
	if (dry()) return put_work((Stream *)stream, [=] { note(call); return SUCCESS; });
	return put_work((Stream *)stream, faults(call) ? [] { return (CUresult)ILLEGAL_ADDRESS; } : *work, owner);
}
extern "C" __attribute__((visibility("default"))) void fakecuda_begin(const void *owner) {
	LOCKED;
	begin(owner);
}
extern "C" __attribute__((visibility("default"))) int fakecuda_device() { return current; }
extern "C" __attribute__((visibility("default"))) int fakecuda_inside(const void *p, size_t n) {
	LOCKED;
	return inside((CUdeviceptr)p, n);
}

// Kernels compiled for the host, by name.
static std::map<std::string, emu::Kernel> &kernels() {
	static std::map<std::string, emu::Kernel> all;
	return all;
}
void emu::add(Kernel k) { kernels()[k.name] = k; }

struct Function {
	std::string name;
	const emu::Kernel *kernel;
	ptx::Entry entry;
	size_t parameters; // where the interpreter runs it
	uint64_t module;
};
struct Module {
	std::map<std::string, Function> functions;
	uint64_t interpreted = 0; // by the interpreter
};

static const mezzo_fake_interpreter *interpreter;
extern "C" __attribute__((visibility("default"))) void fakecuda_interpret(const mezzo_fake_interpreter *i) { interpreter = i; }

// interpret runs a kernel by the interpreter, which may access all allocations.
static CUresult interpret(const Function *fn, dim3 grid, dim3 block, unsigned shared, std::vector<uint64_t> &values) {
	static std::vector<mezzo_fake_memory> memory;
	static uint64_t of = 0;
	if (of != generation) {
		memory.clear();
		for (auto &a : allocations) memory.push_back({a.first, a.second.bytes});
		of = generation;
	}
	mezzo_fake_launch l = {fn->module, (char *)fn->name.c_str(), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared,
		values.data(), (int)values.size(), generation, memory.data(), (int)memory.size(), 0, 0};
	CUresult r = interpreter->run(&l);
	emu::swaps = l.swaps;
	return r;
}

// Modules are PTX. A kernel that was compiled for the host as well runs as
// that, others are interpreted.
API cuModuleLoadData(void **m, const void *image) {
	LOCKED;
	if (capturing) return CAPTURE_UNSUPPORTED;
	int machine = cubin::machine(image), capability = atoi(of_device("FAKECUDA_CAPABILITY", "90", current).c_str());
	if (const char *name = getenv("FAKECUDA_LOADS")) {
		if (FILE *f = fopen(name, "a")) {
			fprintf(f, machine ? "sm_%d\n" : "PTX\n", machine);
			fclose(f);
		}
	}
	if (machine) {
		if (interpreter || setting("CUDA_FORCE_PTX_JIT", 0) || machine > capability || machine / 10 != capability / 10) return NO_BINARY;
		Module *module = new Module;
		for (auto &entry : cubin::entries(image)) {
			auto k = kernels().find(entry.first);
			if (k == kernels().end() || k->second.parameters != entry.second) {
				fprintf(stderr, "fakecuda: kernel %s has %zu parameters in the cubin and %zd on the host\n", entry.first.c_str(), entry.second,
					k == kernels().end() ? -1 : (ssize_t)k->second.parameters);
				delete module;
				return INVALID_IMAGE;
			}
			module->functions[entry.first] = {entry.first, &k->second, {}};
		}
		*m = module;
		return SUCCESS;
	}
	std::string text((const char *)image);
	if (text.find(".version") == std::string::npos) return INVALID_IMAGE;
	Module *module = new Module;
	if (interpreter)
		if (CUresult e = interpreter->load((char *)image, &module->interpreted)) return e;
	std::string interpreted;
	for (size_t at = 0; (at = text.find(".entry ", at)) != std::string::npos; at += 7) {
		size_t open = text.find('(', at), close = text.find(')', at);
		std::string name = text.substr(at + 7, open - at - 7);
		size_t count = 0;
		for (size_t p = open; (p = text.find(".param ", p)) < close; p++) count++;
		auto k = kernels().find(name);
		if (interpreter) {
			module->functions[name] = {name, nullptr, {}, count, module->interpreted};
			continue;
		}
		if (k == kernels().end()) {
			size_t next = text.find(".visible .entry", at);
			interpreted += text.substr(at, next == std::string::npos ? next : next - at);
			continue;
		}
		if (count != k->second.parameters) {
			fprintf(stderr, "fakecuda: kernel %s has %zu parameters in PTX and %zu on the host\n", name.c_str(), count, k->second.parameters);
			return INVALID_PTX;
		}
		module->functions[name] = {name, &k->second, {}};
	}
	if (interpreter) {
		*m = module;
		return SUCCESS;
	}
	std::map<std::string, ptx::Entry> entries;
	std::string error;
	if (!ptx::parse(interpreted.c_str(), entries, error)) {
		fprintf(stderr, "fakecuda: PTX: %s\n", error.c_str());
		return INVALID_PTX;
	}
	for (auto &e : entries) module->functions[e.first] = {e.first, nullptr, e.second};
	*m = module;
	return SUCCESS;
}
API cuModuleUnload(void *m) {
	LOCKED;
	CUresult e = drain_all(current);
	if (interpreter) interpreter->unload(((Module *)m)->interpreted);
	delete (Module *)m;
	return e;
}
API cuModuleGetFunction(void **f, void *m, const char *name) {
	auto &functions = ((Module *)m)->functions;
	auto i = functions.find(name);
	if (i == functions.end()) return NOT_FOUND;
	*f = &i->second;
	return SUCCESS;
}

API cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters, void **) {
	LOCKED;
	Function *fn = (Function *)f;
	if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz == 0 || bx * by * bz > 1024 || shared > 48 << 10) return INVALID_VALUE;
	if (((Stream *)stream)->device != current) return INVALID_HANDLE;
	size_t n = fn->kernel ? fn->kernel->parameters : interpreter ? fn->parameters : fn->entry.parameters.size();
	std::vector<uint64_t> values(n);
	for (size_t i = 0; i < n; i++) values[i] = *(uint64_t *)parameters[i];
	return put_work((Stream *)stream, [=]() mutable {
		std::string line = fn->name;
		if (dry()) {
			for (unsigned u : {gx, gy, gz, bx, by, bz}) line += " " + std::to_string(u);
			for (uint64_t v : values) line += " " + std::to_string((int64_t)v);
		}
		if (dry()) {
			note(line);
			return (CUresult)SUCCESS;
		}
		emu::indices = emu::swaps = 0;
		if (faults(fn->name)) return (CUresult)ILLEGAL_ADDRESS;
		std::vector<void *> p;
		for (auto &v : values) p.push_back(&v);
		dim3 grid{gx, gy, gz}, block{bx, by, bz};
		if (interpreter) {
			CUresult r = interpret(fn, grid, block, shared, values);
			note(line + " " + std::to_string(emu::indices) + " " + std::to_string(emu::swaps));
			return r;
		}
		running = fn->name.c_str();
		static char stack[65536];
		stack_t alternative = {stack, 0, sizeof stack}, before;
		struct sigaction act = {}, old;
		act.sa_sigaction = on_fault;
		act.sa_flags = SA_SIGINFO | SA_ONSTACK;
		sigaltstack(&alternative, &before);
		sigaction(SIGSEGV, &act, &old);
		int r = fn->kernel ? fn->kernel->run(p.data(), grid, block, shared) : ptx::run(fn->entry, p.data(), grid, block);
		sigaction(SIGSEGV, &old, nullptr);
		sigaltstack(&before, nullptr);
		running = "none";
		note(line + " " + std::to_string(emu::indices) + " " + std::to_string(emu::swaps));
		return (CUresult)r;
	});
}
