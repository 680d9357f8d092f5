// What the fake driver has to know of a cubin, which is an ELF file: for which
// GPU it is, and its kernels with the number of their parameters.
#pragma once
#include <elf.h>
#include <string.h>

#include <map>
#include <string>

namespace cubin {

// machine is 10 times the compute capability, or 0: image is no cubin.
inline int machine(const void *image) {
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
	const int cuda = 190; // EM_CUDA
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_machine != cuda) return 0;
	return h->e_flags & 0xff;
}

// entries has the kernels: each has a section .nv.info.NAME, a list of attributes
// of which there is one for each parameter.
inline std::map<std::string, size_t> entries(const void *image) {
	const char *base = (const char *)image;
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + h->e_shoff);
	const char *names = base + sections[h->e_shstrndx].sh_offset;
	const std::string prefix = ".nv.info.";
	std::map<std::string, size_t> all;
	for (int i = 0; i < h->e_shnum; i++) {
		const std::string name = names + sections[i].sh_name;
		if (name.compare(0, prefix.size(), prefix)) continue;
		size_t parameters = 0;
		const unsigned char *p = (const unsigned char *)base + sections[i].sh_offset, *end = p + sections[i].sh_size;
		while (p + 4 <= end) {
			const int format = p[0], attribute = p[1], bytes = p[2] | p[3] << 8;
			const int sized = 4, parameter = 0x17; // EIFMT_SVAL, EIATTR_KPARAM_INFO
			parameters += attribute == parameter;
			p += 4 + (format == sized ? bytes : 0);
		}
		all[name.substr(prefix.size())] = parameters;
	}
	return all;
}

} // namespace cubin
