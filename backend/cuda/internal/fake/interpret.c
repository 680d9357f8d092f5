//go:build cuda && linux && amd64

#include <dlfcn.h>
#include "_cgo_export.h"

const char *mezzo_fake_interpret(const char *driver) {
	void *library = dlopen(driver, RTLD_NOW);
	if (!library) return dlerror();
	void (*set)(const mezzo_fake_interpreter *) = (void (*)(const mezzo_fake_interpreter *))dlsym(library, "fakecuda_interpret");
	if (!set) return dlerror();
	static const mezzo_fake_interpreter own = {mezzoFakeLoad, mezzoFakeUnload, mezzoFakeRun};
	set(&own);
	return 0;
}
