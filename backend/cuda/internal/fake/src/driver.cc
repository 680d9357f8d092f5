// A libcuda.so.1 for tests on machines without a GPU. Memory is that of the
// host, with NaNs in fresh allocations and a page after each that faults;
// streams do their work at once; kernels are run by emu.cc and ptx.cc. Calls
// that are illegal while a stream is captured fail as the real ones do.
//
// FAKECUDA_VERSION (12040), FAKECUDA_CAPABILITY (90), FAKECUDA_DEVICES (1) and
// FAKECUDA_MEMORY (bytes, 1 GiB) describe the machine.
#include "ptx.h"
#undef blockIdx
#undef blockDim
#undef gridDim
#undef threadIdx

#include <functional>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
	INVALID_PTX = 218, ILLEGAL_STATE = 401, NOT_FOUND = 500, LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900,
};

#define API extern "C" __attribute__((visibility("default"))) CUresult

static long setting(const char *name, long otherwise) {
	const char *s = getenv(name);
	return s && *s ? atol(s) : otherwise;
}

struct Allocation {
	char *map;
	size_t mapped, bytes;
};
static std::map<char *, Allocation> allocations;
static size_t used;
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

API cuInit(unsigned) { return setting("FAKECUDA_DEVICES", 1) ? SUCCESS : NO_DEVICE; }
API cuDriverGetVersion(int *v) { *v = (int)setting("FAKECUDA_VERSION", 12040); return SUCCESS; }
API cuDeviceGetCount(int *n) { *n = (int)setting("FAKECUDA_DEVICES", 1); return SUCCESS; }
API cuDeviceGet(int *d, int ordinal) { *d = ordinal; return SUCCESS; }
API cuDeviceGetName(char *name, int n, int) { snprintf(name, n, "Fake GPU"); return SUCCESS; }
API cuDeviceTotalMem_v2(size_t *n, int) { *n = setting("FAKECUDA_MEMORY", 1l << 30); return SUCCESS; }
API cuDeviceGetAttribute(int *v, int attribute, int) {
	long capability = setting("FAKECUDA_CAPABILITY", 90);
	*v = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 16 ? 4 : 1024;
	return SUCCESS;
}
static int context;
API cuDevicePrimaryCtxRetain(void **c, int) { *c = &context; return SUCCESS; }
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuCtxSetCurrent(void *) { return SUCCESS; }

API cuGetErrorName(int e, const char **s) {
	*s = e == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : e == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : e == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" : "CUDA_ERROR";
	return SUCCESS;
}
API cuGetErrorString(int e, const char **s) {
	*s = e == OUT_OF_MEMORY ? "out of memory" : e == NO_DEVICE ? "no CUDA-capable device is detected" : "an error of the fake driver";
	return SUCCESS;
}

// A graph is what was captured.
typedef std::vector<std::function<CUresult()>> Graph;
static Graph *capturing;

static CUresult perform(std::function<CUresult()> f) {
	if (!capturing) return f();
	capturing->push_back(f);
	return SUCCESS;
}

API cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	if (capturing) return CAPTURE_UNSUPPORTED;
	if (n == 0) return INVALID_VALUE;
	if (used + n > (size_t)setting("FAKECUDA_MEMORY", 1l << 30)) return OUT_OF_MEMORY;
	size_t rounded = (n + 15) & ~(size_t)15, mapped = (rounded + PAGE - 1) / PAGE * PAGE + PAGE;
	char *m = (char *)mmap(0, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) return OUT_OF_MEMORY;
	mprotect(m + mapped - PAGE, PAGE, PROT_NONE);
	memset(m, 0xFF, mapped - PAGE);
	char *q = m + mapped - PAGE - rounded;
	allocations[q] = {m, mapped, n};
	used += n;
	*p = (CUdeviceptr)q;
	return SUCCESS;
}
API cuMemFree_v2(CUdeviceptr p) {
	if (capturing) return CAPTURE_UNSUPPORTED;
	auto a = allocations.find((char *)p);
	if (a == allocations.end()) return INVALID_VALUE;
	munmap(a->second.map, a->second.mapped);
	used -= a->second.bytes;
	allocations.erase(a);
	return SUCCESS;
}
API cuMemGetInfo_v2(size_t *free, size_t *total) {
	*total = setting("FAKECUDA_MEMORY", 1l << 30);
	*free = *total - used;
	return SUCCESS;
}
API cuMemHostAlloc(void **p, size_t n, unsigned) { *p = malloc(n ? n : 1); return SUCCESS; }
API cuMemFreeHost(void *p) { free(p); return SUCCESS; }

static bool inside(CUdeviceptr p, size_t n) {
	auto a = allocations.upper_bound((char *)p);
	return a != allocations.begin() && (--a, (char *)p + n <= a->first + a->second.bytes);
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, void *) {
	if (!inside(to, n)) return INVALID_VALUE;
	return perform([=] { memcpy((void *)to, from, n); return SUCCESS; });
}
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, void *) {
	if (!inside(from, n)) return INVALID_VALUE;
	return perform([=] { memcpy(to, (void *)from, n); return SUCCESS; });
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, void *) {
	if (!inside(from, n) || !inside(to, n)) return INVALID_VALUE;
	return perform([=] { memmove((void *)to, (void *)from, n); return SUCCESS; });
}
API cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, void *) {
	if (!inside(to, n)) return INVALID_VALUE;
	return perform([=] { memset((void *)to, v, n); return SUCCESS; });
}

API cuStreamCreate(void **s, unsigned) { *s = malloc(1); return SUCCESS; }
API cuStreamDestroy_v2(void *s) { free(s); return SUCCESS; }
API cuStreamSynchronize(void *) { return capturing ? CAPTURE_UNSUPPORTED : SUCCESS; }
API cuStreamBeginCapture_v2(void *, int) {
	if (capturing) return ILLEGAL_STATE;
	capturing = new Graph;
	return SUCCESS;
}
API cuStreamEndCapture(void *, void **g) {
	if (!capturing) return ILLEGAL_STATE;
	*g = capturing;
	capturing = nullptr;
	return SUCCESS;
}
API cuGraphDestroy(void *g) { delete (Graph *)g; return SUCCESS; }
API cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long) {
	if (capturing) return CAPTURE_UNSUPPORTED;
	*e = new Graph(*(Graph *)g);
	return SUCCESS;
}
API cuGraphExecDestroy(void *e) { delete (Graph *)e; return SUCCESS; }
API cuGraphLaunch(void *e, void *) {
	for (auto &f : *(Graph *)e)
		if (CUresult r = f()) return r;
	return SUCCESS;
}

// What the fake libraries need: work for a stream, and whether memory exists.
extern "C" __attribute__((visibility("default"))) int fakecuda_submit(void *, std::function<CUresult()> *work) { return perform(*work); }
extern "C" __attribute__((visibility("default"))) int fakecuda_inside(const void *p, size_t n) { return inside((CUdeviceptr)p, n); }

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
};
struct Module {
	std::map<std::string, Function> functions;
};

// Modules are PTX. A kernel that was compiled for the host as well runs as
// that, others are interpreted.
API cuModuleLoadData(void **m, const void *image) {
	if (capturing) return CAPTURE_UNSUPPORTED;
	std::string text((const char *)image);
	if (text.find(".version") == std::string::npos) return INVALID_IMAGE;
	Module *module = new Module;
	std::string interpreted;
	for (size_t at = 0; (at = text.find(".entry ", at)) != std::string::npos; at += 7) {
		size_t open = text.find('(', at), close = text.find(')', at);
		std::string name = text.substr(at + 7, open - at - 7);
		auto k = kernels().find(name);
		if (k == kernels().end()) {
			size_t next = text.find(".visible .entry", at);
			interpreted += text.substr(at, next == std::string::npos ? next : next - at);
			continue;
		}
		size_t count = 0;
		for (size_t p = open; (p = text.find(".param ", p)) < close; p++) count++;
		if (count != k->second.parameters) {
			fprintf(stderr, "fakecuda: kernel %s has %zu parameters in PTX and %zu on the host\n", name.c_str(), count, k->second.parameters);
			return INVALID_PTX;
		}
		module->functions[name] = {name, &k->second, {}};
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
API cuModuleUnload(void *m) { delete (Module *)m; return SUCCESS; }
API cuModuleGetFunction(void **f, void *m, const char *name) {
	auto &functions = ((Module *)m)->functions;
	auto i = functions.find(name);
	if (i == functions.end()) return NOT_FOUND;
	*f = &i->second;
	return SUCCESS;
}

API cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *, void **parameters, void **) {
	Function *fn = (Function *)f;
	if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz == 0 || bx * by * bz > 1024 || shared > 48 << 10) return INVALID_VALUE;
	size_t n = fn->kernel ? fn->kernel->parameters : fn->entry.parameters.size();
	std::vector<uint64_t> values(n);
	for (size_t i = 0; i < n; i++) values[i] = *(uint64_t *)parameters[i];
	return perform([=]() mutable {
		std::vector<void *> p;
		for (auto &v : values) p.push_back(&v);
		running = fn->name.c_str();
		static char stack[65536];
		stack_t alternative = {stack, 0, sizeof stack}, before;
		struct sigaction act = {}, old;
		act.sa_sigaction = on_fault;
		act.sa_flags = SA_SIGINFO | SA_ONSTACK;
		sigaltstack(&alternative, &before);
		sigaction(SIGSEGV, &act, &old);
		dim3 grid{gx, gy, gz}, block{bx, by, bz};
		int r = fn->kernel ? fn->kernel->run(p.data(), grid, block, shared) : ptx::run(fn->entry, p.data(), grid, block);
		sigaction(SIGSEGV, &old, nullptr);
		sigaltstack(&before, nullptr);
		running = "none";
		return (CUresult)r;
	});
}
