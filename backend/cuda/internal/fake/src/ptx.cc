#include "ptx.h"

#include <cfenv>
#include <climits>
#include <functional>
#include <sstream>

namespace ptx {

// What an instruction does; found by its name when the text is read.
enum Kind {
	BAD, MOV, ADD, SUB, MUL, MULHI, MULWIDE, MAD, FMA, DIV, REM, MIN, MAX, NEG, ABS, NOT, AND, OR, XOR, SHL, SHR,
	SETP, SELP, CVT, EX2, RCP, SQRT, LDPARAM, LDGLOBAL, STGLOBAL, STPARAM, BRA, RET, CALL, CLZ, PACK, UNPACK,
};

static Kind kind_of(const std::vector<std::string> &op) {
	static const std::map<std::string, Kind> names = {
		{"mov", MOV}, {"add", ADD}, {"sub", SUB}, {"mul", MUL}, {"mad", MAD}, {"fma", FMA}, {"div", DIV}, {"rem", REM},
		{"min", MIN}, {"max", MAX}, {"neg", NEG}, {"abs", ABS}, {"not", NOT}, {"and", AND}, {"or", OR}, {"xor", XOR},
		{"shl", SHL}, {"shr", SHR}, {"setp", SETP}, {"selp", SELP}, {"cvt", CVT}, {"ex2", EX2}, {"rcp", RCP}, {"sqrt", SQRT},
		{"bra", BRA}, {"ret", RET}, {"call", CALL}, {"clz", CLZ},
	};
	if (op[0] == "ld" && op.size() > 2) return op[1] == "param" ? LDPARAM : op[1] == "global" ? LDGLOBAL : BAD;
	if (op[0] == "st" && op.size() > 2) return op[1] == "param" ? STPARAM : op[1] == "global" ? STGLOBAL : BAD;
	auto i = names.find(op[0]);
	if (i == names.end()) return BAD;
	if (op[0] == "mul" && op.size() > 1) {
		if (op[1] == "hi") return MULHI;
		if (op[1] == "wide") return MULWIDE;
	}
	if (op[0] == "mad" && op[1] != "lo") return BAD;
	for (auto &p : op)
		if (p == "cc") return BAD;
	return i->second;
}

// Types of operands.
enum Type { NONE, PRED, U8, U16, F16, BF16, U32, S32, U64, S64, F32, F64 };

static Type type_of(const std::string &t) {
	static const std::map<std::string, Type> names = {
		{"pred", PRED}, {"u8", U8}, {"b8", U8}, {"u16", U16}, {"b16", U16}, {"s16", U16}, {"f16", F16}, {"bf16", BF16}, {"u32", U32},
		{"b32", U32}, {"s32", S32}, {"u64", U64}, {"b64", U64}, {"s64", S64}, {"f32", F32}, {"f64", F64},
	};
	auto i = names.find(t);
	return i == names.end() ? NONE : i->second;
}

// Comparisons; above UNORDERED those that are true of NaN.
enum How { EQ, NE, LT, LE, GT, GE, NUM, ISNAN, UNORDERED = 8 };

static int how_of(const std::string &h) {
	static const std::map<std::string, int> names = {
		{"eq", EQ}, {"ne", NE}, {"lt", LT}, {"le", LE}, {"gt", GT}, {"ge", GE}, {"lo", LT}, {"ls", LE}, {"hi", GT}, {"hs", GE}, {"num", NUM},
		{"nan", ISNAN}, {"equ", EQ + UNORDERED}, {"neu", NE + UNORDERED}, {"ltu", LT + UNORDERED}, {"leu", LE + UNORDERED},
		{"gtu", GT + UNORDERED}, {"geu", GE + UNORDERED},
	};
	auto i = names.find(h);
	return i == names.end() ? -1 : i->second;
}

enum Rounding { NEAREST, RNI, RMI, RPI, RZI };

// Names of registers are those of the innermost block that declares them.
struct Scope {
	std::map<std::string, int> registers;
	std::map<std::string, int> families; // %f<8>: %f1 to %f7 begin at a slot
};

struct Parser {
	Entry entry;
	std::vector<Scope> scopes;
	std::map<std::string, int> labels;
	std::string error;

	int lookup(const std::string &name) {
		for (size_t i = scopes.size(); i-- > 0;) {
			auto r = scopes[i].registers.find(name);
			if (r != scopes[i].registers.end()) return r->second;
			size_t digit = name.find_first_of("0123456789");
			if (digit == std::string::npos) continue;
			auto f = scopes[i].families.find(name.substr(0, digit));
			if (f != scopes[i].families.end()) return f->second + atoi(name.c_str() + digit);
		}
		return -1;
	}

	void declare(std::string rest) { // "%f<8>", "%x1" or "%t, %b"
		size_t family = rest.find('<');
		if (family != std::string::npos) {
			scopes.back().families[rest.substr(0, family)] = entry.slots;
			entry.slots += atoi(rest.c_str() + family + 1);
			return;
		}
		std::stringstream s(rest);
		for (std::string name; std::getline(s, name, ',');) {
			name.erase(0, name.find_first_not_of(" \t"));
			scopes.back().registers[name] = entry.slots++;
		}
	}

	bool operand(std::string t, Operand &o) {
		if (t[0] == '%') {
			if (t == "%tid.x") o.slot = 0;
			else if (t == "%ctaid.x") o.slot = 1;
			else o.slot = lookup(t);
			return o.slot >= 0;
		}
		if (t.compare(0, 2, "0f") == 0) o.value = strtoull(t.c_str() + 2, 0, 16);
		else if (t.compare(0, 2, "0d") == 0) o.value = strtoull(t.c_str() + 2, 0, 16);
		else if (isdigit(t[0])) o.value = strtoull(t.c_str(), 0, 0);
		else if (t[0] == '-') o.value = (uint64_t)strtoll(t.c_str(), 0, 0);
		else {
			o.slot = lookup(t);
			return o.slot >= 0;
		}
		return true;
	}

	bool statement(std::string t);
};

static std::vector<std::string> split(const std::string &s, const char *separators) {
	std::vector<std::string> parts;
	for (size_t i = 0; (i = s.find_first_not_of(separators, i)) != std::string::npos;) {
		size_t e = s.find_first_of(separators, i);
		parts.push_back(s.substr(i, e == std::string::npos ? e : e - i));
		if (e == std::string::npos) break;
		i = e;
	}
	return parts;
}

bool Parser::statement(std::string t) {
	Instruction in;
	in.text = t;
	if (t.compare(0, 4, ".reg") == 0 || t.compare(0, 6, ".param") == 0) { // .reg .f32 %f<8>
		size_t name = t.find(' ', t.find('.', 1));
		if (t.find('\t', 5) != std::string::npos) name = std::min(name, t.find('\t', 5));
		name = t.find_first_not_of(" \t", name);
		declare(t.substr(name));
		return true;
	}
	if (t[0] == '@') {
		size_t e = t.find_first_of(" \t");
		in.unless = t[1] == '!';
		in.guard = lookup(t.substr(in.unless ? 2 : 1, e - (in.unless ? 2 : 1)));
		if (in.guard < 0) return false;
		t = t.substr(t.find_first_not_of(" \t", e));
	}
	size_t e = t.find_first_of(" \t");
	in.op = split(t.substr(0, e), ".");
	in.kind = kind_of(in.op);
	in.type = type_of(in.op.back());
	if (in.op.size() > 2) in.from = type_of(in.op[in.op.size() - 2]);
	if (in.kind == SETP && (in.how = how_of(in.op[1])) < 0) return false;
	if (in.kind == CVT && (!in.from || !in.type)) return false;
	for (auto &p : in.op) {
		if (p == "sat") in.saturate = true;
		if (p == "rni") in.rounding = RNI;
		if (p == "rmi") in.rounding = RMI;
		if (p == "rpi") in.rounding = RPI;
		if (p == "rzi") in.rounding = RZI;
		if (p == "rm") in.rounding = FE_DOWNWARD;
		if (p == "rp") in.rounding = FE_UPWARD;
		if (p == "rz") in.rounding = FE_TOWARDZERO;
	}
	std::string rest = e == std::string::npos ? "" : t.substr(e);
	switch (in.kind) {
	case BAD:
		return false;
	case RET:
		break;
	case BRA:
		in.name = split(rest, " \t")[0];
		break;
	case CALL: { // call (r), name, (a0, a1)
		auto parts = split(rest, " \t,()");
		in.name = parts[1];
		parts.erase(parts.begin() + 1);
		for (auto &p : parts) {
			Operand o;
			if (!operand(p, o)) return false;
			in.args.push_back(o);
		}
		break;
	}
	default:
		if (in.kind == MOV && rest.find('{') != std::string::npos) {
			in.kind = rest.find('{') < rest.find('%') ? UNPACK : PACK;
			for (char &c : rest)
				if (c == '{' || c == '}') c = ' ';
		}
		if (in.kind == LDGLOBAL || in.kind == STGLOBAL) { // ld.global.v4.f32 {a, b, c, d}, [e]
			in.width = in.op[2] == "v4" ? 4 : in.op[2] == "v2" ? 2 : 1;
			for (char &c : rest)
				if (c == '{' || c == '}') c = ' ';
		}
		for (auto &p : split(rest, " \t,[]")) {
			Operand o;
			if (in.kind == LDPARAM && in.args.size() == 1 && p[0] == 'p') { // a parameter of the kernel
				for (size_t i = 0; i < entry.parameters.size(); i++)
					if (entry.parameters[i] == p) in.target = (int)i;
				if (in.target < 0) return false;
				break;
			}
			if (!operand(p, o)) return false;
			in.args.push_back(o);
		}
	}
	entry.code.push_back(in);
	return true;
}

// place gives the arguments of an instruction slots.
static bool place(Entry &e, Instruction &in) {
	const size_t most = sizeof in.slot / sizeof *in.slot;
	if (in.args.size() > most) return false;
	for (size_t i = 0; i < most; i++) {
		in.slot[i] = e.slots;
		if (i >= in.args.size()) continue;
		if (in.args[i].slot >= 0) {
			in.slot[i] = in.args[i].slot;
			continue;
		}
		in.slot[i] += (int)e.constants.size();
		e.constants.push_back(in.args[i].value);
	}
	return true;
}

bool parse(const char *text, std::map<std::string, Entry> &entries, std::string &error) {
	std::string s;
	for (const char *p = text; *p;) { // without comments
		if (p[0] == '/' && p[1] == '/') {
			while (*p && *p != '\n') p++;
		} else {
			s += *p++;
		}
	}
	for (size_t at = 0; (at = s.find(".entry ", at)) != std::string::npos;) {
		Parser p;
		size_t open = s.find('(', at), close = s.find(')', at), body = s.find('{', close);
		p.entry.name = split(s.substr(at + 7, open - at - 7), " \t\n")[0];
		for (auto &line : split(s.substr(open + 1, close - open - 1), ",\n")) {
			auto words = split(line, " \t");
			if (words.size() < 3) continue;
			if (words[1] != ".u64") {
				error = "parameter of another size than 8 bytes in " + p.entry.name;
				return false;
			}
			p.entry.parameters.push_back(words[2]);
		}
		p.entry.slots = 2;
		std::string statement;
		size_t i = body;
		for (;; i++) {
			char c = s[i];
			bool inside = statement.find_first_not_of(" \t\n") != std::string::npos; // mov.b64 {lo, hi}, x
			if (c == '{' && !inside) {
				p.scopes.push_back({});
			} else if (c == '}' && !inside) {
				p.scopes.pop_back();
				if (p.scopes.empty()) break;
			} else if (c == ';' || c == ':') {
				statement.erase(0, statement.find_first_not_of(" \t\n"));
				statement.erase(statement.find_last_not_of(" \t\n") + 1);
				if (c == ':') {
					p.labels[statement] = (int)p.entry.code.size();
				} else if (statement.compare(0, 7, ".pragma") != 0 && !p.statement(statement)) {
					error = p.entry.name + ": " + statement;
					return false;
				}
				statement.clear();
			} else {
				statement += c;
			}
		}
		for (auto &in : p.entry.code)
			if (in.kind == BRA) {
				if (!p.labels.count(in.name)) {
					error = p.entry.name + ": no label " + in.name;
					return false;
				}
				in.target = p.labels[in.name];
			}
		for (auto &in : p.entry.code)
			if (!place(p.entry, in)) {
				error = p.entry.name + ": too many operands: " + in.text;
				return false;
			}
		entries[p.entry.name] = p.entry;
		at = i;
	}
	return true;
}

// A register.
union Slot {
	uint64_t u64;
	int64_t s64;
	uint32_t u32;
	int32_t s32;
	float f32;
	double f64;
};

static double number(int t, Slot s) {
	return t == F32 ? s.f32 : t == F64 ? s.f64 : t == S32 ? s.s32 : t == U32 ? s.u32 : t == S64 ? (double)s.s64 : (double)s.u64;
}

template <class T> static T clamp(double x, T low, T high) {
	if (x != x) return 0;
	if (x <= (double)low) return low;
	if (x >= (double)high) return high;
	return (T)x;
}

static Slot convert(const Instruction &in, Slot x) {
	const int to = in.from, from = in.type;
	Slot r;
	r.u64 = 0;
	if (from == F16) {
		_Float16 h;
		uint16_t b = (uint16_t)x.u32;
		memcpy(&h, &b, 2);
		r.f32 = (float)h;
		return r;
	}
	if (to == F16) {
		_Float16 h = (_Float16)x.f32;
		uint16_t b;
		memcpy(&b, &h, 2);
		r.u32 = b;
		return r;
	}
	if (to == BF16) {
		uint32_t u = x.u32;
		r.u32 = (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
		return r;
	}
	if (from == F32 || from == F64) {
		double v = number(from, x);
		switch (in.rounding) {
		case RNI: v = nearbyint(v); break;
		case RMI: v = floor(v); break;
		case RPI: v = ceil(v); break;
		case RZI: v = trunc(v); break;
		}
		switch (to) {
		case F32: r.f32 = in.saturate ? (v != v ? 0 : v < 0 ? 0 : v > 1 ? 1 : (float)v) : (float)v; break;
		case F64: r.f64 = v; break;
		case S32: r.s32 = clamp<int32_t>(v, INT_MIN, INT_MAX); break;
		case U32: r.u32 = clamp<uint32_t>(v, 0, UINT_MAX); break;
		case S64: r.s64 = clamp<int64_t>(v, LLONG_MIN, LLONG_MAX); break;
		default: r.u64 = clamp<uint64_t>(v, 0, ULLONG_MAX);
		}
		return r;
	}
	int64_t v = from == S32 ? x.s32 : from == U32 ? (int64_t)x.u32 : from == U16 ? (int64_t)(uint16_t)x.u32 : from == U8 ? (int64_t)(uint8_t)x.u32 : x.s64;
	switch (to) {
	case F32: r.f32 = from == U64 ? (float)(uint64_t)v : (float)v; break;
	case F64: r.f64 = from == U64 ? (double)(uint64_t)v : (double)v; break;
	case U16: r.u32 = (uint16_t)v; break;
	case U8: r.u32 = (uint8_t)v; break;
	case U32:
	case S32: r.u32 = (uint32_t)v; break;
	default: r.s64 = v;
	}
	return r;
}

template <class T> static bool ordered(int how, T x, T y) {
	switch (how) {
	case EQ: return x == y;
	case NE: return x != y;
	case LT: return x < y;
	case LE: return x <= y;
	case GT: return x > y;
	}
	return x >= y;
}

static bool compare(int how, int t, Slot a, Slot b) {
	switch (t) {
	case F32:
	case F64: {
		double x = number(t, a), y = number(t, b);
		bool unordered = x != x || y != y;
		if (how == NUM) return !unordered;
		if (how == ISNAN) return unordered;
		if (unordered) return how >= UNORDERED;
		return ordered(how % UNORDERED, x, y);
	}
	case S32: return ordered(how, a.s32, b.s32);
	case S64: return ordered(how, a.s64, b.s64);
	case U64: return ordered(how, a.u64, b.u64);
	}
	return ordered(how, a.u32, b.u32);
}

#define FLOAT_OR_INT(FLOAT, INT) \
	if (t == F32) { float x = a.f32, y = b.f32; r.f32 = FLOAT; } \
	else if (t == F64) { double x = a.f64, y = b.f64; r.f64 = FLOAT; } \
	else if (t == S32) { int32_t x = a.s32, y = b.s32; (void)x; (void)y; r.s32 = (int32_t)(INT); } \
	else if (t == S64) { int64_t x = a.s64, y = b.s64; (void)x; (void)y; r.s64 = (int64_t)(INT); } \
	else if (t == U64) { uint64_t x = a.u64, y = b.u64; (void)x; (void)y; r.u64 = (uint64_t)(INT); } \
	else { uint32_t x = a.u32, y = b.u32; (void)x; (void)y; r.u32 = (uint32_t)(INT); }

// arithmetic is one instruction, of a kind and a type, without memory and jumps.
template <int KIND> static inline Slot arithmetic(const Instruction &in, const int t, Slot a, Slot b, Slot c) {
	const int rounding = in.rounding;
	Slot r;
	r.u64 = 0;
	volatile float vf;
	switch (KIND) {
	case MOV: return a;
	case ADD:
		if (t == F32 && rounding != FE_TONEAREST) {
			fesetround(rounding);
			vf = a.f32;
			vf = vf + b.f32;
			fesetround(FE_TONEAREST);
			r.f32 = vf;
			return r;
		}
		FLOAT_OR_INT(x + y, (uint64_t)x + (uint64_t)y) return r;
	case SUB: FLOAT_OR_INT(x - y, (uint64_t)x - (uint64_t)y) return r;
	case MUL: FLOAT_OR_INT(x * y, (uint64_t)x * (uint64_t)y) return r;
	case MULHI: r.u32 = (uint32_t)((uint64_t)a.u32 * b.u32 >> 32); return r;
	case MULWIDE:
		if (t == S32) r.s64 = (int64_t)a.s32 * b.s32;
		else r.u64 = (uint64_t)a.u32 * b.u32;
		return r;
	case MAD:
		if (t == U64 || t == S64) r.u64 = a.u64 * b.u64 + c.u64;
		else r.u32 = a.u32 * b.u32 + c.u32;
		return r;
	case FMA:
		if (rounding != FE_TONEAREST) fesetround(rounding);
		if (t == F32) r.f32 = fmaf(a.f32, b.f32, c.f32);
		else r.f64 = fma(a.f64, b.f64, c.f64);
		if (rounding != FE_TONEAREST) fesetround(FE_TONEAREST);
		return r;
	case DIV: FLOAT_OR_INT(x / y, y == 0 ? -1 : x / y) return r;
	case REM: FLOAT_OR_INT(0, y == 0 ? -1 : x % y) return r;
	case MIN: FLOAT_OR_INT(x != x ? y : y != y ? x : x < y ? x : y, x < y ? x : y) return r;
	case MAX: FLOAT_OR_INT(x != x ? y : y != y ? x : x > y ? x : y, x > y ? x : y) return r;
	case NEG: FLOAT_OR_INT(-x, 0 - (uint64_t)x) return r;
	case ABS: FLOAT_OR_INT(x < 0 || (x == 0 && std::signbit((double)x)) ? -x : x, (int64_t)x < 0 ? 0 - (uint64_t)x : (uint64_t)x) return r;
	case NOT: r.u64 = t == PRED ? !a.u64 : ~a.u64; return r;
	case AND: r.u64 = a.u64 & b.u64; return r;
	case OR: r.u64 = a.u64 | b.u64; return r;
	case XOR: r.u64 = a.u64 ^ b.u64; return r;
	case SHL:
		if (t == U64 || t == S64) r.u64 = b.u32 > 63 ? 0 : a.u64 << b.u32;
		else r.u32 = b.u32 > 31 ? 0 : a.u32 << b.u32;
		return r;
	case SHR:
		if (t == S32) r.s32 = a.s32 >> (b.u32 > 31 ? 31 : b.u32);
		else if (t == S64) r.s64 = a.s64 >> (b.u32 > 63 ? 63 : b.u32);
		else if (t == U64 || t == S64) r.u64 = b.u32 > 63 ? 0 : a.u64 >> b.u32;
		else r.u32 = b.u32 > 31 ? 0 : a.u32 >> b.u32;
		return r;
	case SETP: r.u64 = compare(in.how, t, a, b); return r;
	case SELP: return c.u64 ? a : b;
	case CVT: return convert(in, a);
	case EX2: r.f32 = exp2f(a.f32); return r;
	case RCP: FLOAT_OR_INT(1 / x, 0) return r;
	case SQRT: FLOAT_OR_INT(std::sqrt(x), 0) return r;
	case CLZ: r.u32 = t == U64 ? (a.u64 ? __builtin_clzll(a.u64) : 64) : (a.u32 ? __builtin_clz(a.u32) : 32); return r;
	}
	return r;
}

static size_t size_of(int t) { return t == U8 ? 1 : t == U16 ? 2 : t == U64 || t == S64 || t == F64 ? 8 : 4; }

// call_host runs a function of the host by name.
bool call_host(const std::string &name, const uint64_t *args, size_t n, uint64_t *result);

// Threads that run side by side, as far as they are at the same instruction.
enum { LANES = 64 };

// Group is so many threads of a block: register r of thread l is at s[r * LANES + l].
struct Group {
	Slot *s;
	size_t pc[LANES]; // of each thread that has not returned
	bool done[LANES];
	int list[LANES], n; // those that execute
};

template <int KIND> static void each(const Instruction &in, Slot *s, const int *list, int n) {
	Slot *r = s + in.slot[0] * LANES;
	const Slot *a = s + in.slot[1] * LANES, *b = s + in.slot[2] * LANES, *c = s + in.slot[3] * LANES;
	const int t = in.type;
	for (int j = 0; j < n; j++) {
		const int l = list[j];
		r[l] = arithmetic<KIND>(in, t, a[l], b[l], c[l]);
	}
}

// execute is one instruction, but no jump, of threads. It returns a CUresult.
static int execute(const Entry &e, const Instruction &in, void **parameters, Slot *s, const int *list, int n) {
	auto at = [&](size_t i, int l) -> Slot & { return s[in.slot[i] * LANES + l]; };
	switch (in.kind) {
	case LDPARAM:
		if (in.target < 0) return each<MOV>(in, s, list, n), 0;
		for (int j = 0; j < n; j++) memcpy((void *)&at(0, list[j]), parameters[in.target], 8);
		return 0;
	case STPARAM:
		return each<MOV>(in, s, list, n), 0;
	case LDGLOBAL:
	case STGLOBAL: {
		const int size = size_of(in.type), width = in.width;
		const bool load = in.kind == LDGLOBAL;
		for (int j = 0; j < n; j++) {
			const int l = list[j];
			char *address = (char *)at(load ? width : 0, l).u64;
			if ((uintptr_t)address % (size * width)) {
				fprintf(stderr, "fakecuda: address %p is not aligned: %s\n", address, in.text.c_str());
				return 716; // CUDA_ERROR_MISALIGNED_ADDRESS
			}
			for (int k = 0; k < width; k++) {
				Slot v;
				v.u64 = 0;
				if (load) {
					memcpy((void *)&v, address + k * size, size);
					at(k, l) = v;
				} else {
					v = at(k + 1, l);
					memcpy(address + k * size, (void *)&v, size);
				}
			}
		}
		return 0;
	}
	case PACK:
		for (int j = 0; j < n; j++) at(0, list[j]).u64 = (uint64_t)at(1, list[j]).u32 | (uint64_t)at(2, list[j]).u32 << 32;
		return 0;
	case UNPACK:
		for (int j = 0; j < n; j++) {
			const uint64_t v = at(2, list[j]).u64;
			at(0, list[j]).u64 = (uint32_t)v;
			at(1, list[j]).u64 = v >> 32;
		}
		return 0;
	case CALL:
		for (int j = 0; j < n; j++) {
			uint64_t args[4];
			const size_t count = in.args.size() - 1;
			for (size_t i = 0; i < count; i++) args[i] = at(i + 1, list[j]).u64;
			if (!call_host(in.name, args, count, &at(0, list[j]).u64)) {
				fprintf(stderr, "fakecuda: %s calls %s, which the host does not have\n", e.name.c_str(), in.name.c_str());
				return 719;
			}
		}
		return 0;
#define EACH_KIND(K) case K: return each<K>(in, s, list, n), 0;
	EACH_KIND(MOV) EACH_KIND(ADD) EACH_KIND(SUB) EACH_KIND(MUL) EACH_KIND(MULHI) EACH_KIND(MULWIDE) EACH_KIND(MAD) EACH_KIND(FMA) EACH_KIND(DIV) EACH_KIND(REM)
	EACH_KIND(MIN) EACH_KIND(MAX) EACH_KIND(NEG) EACH_KIND(ABS) EACH_KIND(NOT) EACH_KIND(AND) EACH_KIND(OR) EACH_KIND(XOR) EACH_KIND(SHL) EACH_KIND(SHR)
	EACH_KIND(SETP) EACH_KIND(SELP) EACH_KIND(CVT) EACH_KIND(EX2) EACH_KIND(RCP) EACH_KIND(SQRT) EACH_KIND(CLZ)
	}
	fprintf(stderr, "fakecuda: %s: %s\n", e.name.c_str(), in.text.c_str());
	return 719;
}

// together runs the threads of a group that are at the first instruction that any of them is
// at, until they meet others or part.
static int together(const Entry &e, void **parameters, Group &g, bool &any) {
	const size_t end = e.code.size();
	size_t pc = end, others = end;
	for (int l = 0; l < LANES; l++)
		if (!g.done[l] && g.pc[l] < pc) pc = g.pc[l];
	any = pc < end;
	g.n = 0;
	for (int l = 0; l < LANES; l++) {
		if (g.done[l]) continue;
		if (g.pc[l] == pc) g.list[g.n++] = l;
		else if (g.pc[l] < others) others = g.pc[l];
	}
	auto stay = [&] { for (int j = 0; j < g.n; j++) g.pc[g.list[j]] = pc; };
	while (pc < others) {
		const Instruction &in = e.code[pc++];
		int chosen[LANES], n = g.n; // those whose condition holds
		const int *list = g.list;
		if (in.guard >= 0) {
			n = 0;
			for (int j = 0; j < g.n; j++)
				if (!g.s[in.guard * LANES + g.list[j]].u64 == in.unless) chosen[n++] = g.list[j];
			list = chosen;
			if (n == 0) continue;
		}
		if (in.kind != BRA && in.kind != RET) {
			if (int r = execute(e, in, parameters, g.s, list, n)) return r;
			continue;
		}
		if (in.kind == BRA && n == g.n) {
			pc = (size_t)in.target;
			continue;
		}
		stay();
		for (int j = 0; j < n; j++) {
			if (in.kind == RET) g.done[list[j]] = true;
			else g.pc[list[j]] = (size_t)in.target;
		}
		return 0;
	}
	stay();
	return 0;
}

int run(const Entry &e, void **parameters, dim3 grid, dim3 dims) {
	std::vector<Slot> s((e.slots + e.constants.size()) * LANES);
	for (size_t i = 0; i < e.constants.size(); i++)
		for (int l = 0; l < LANES; l++) s[(e.slots + i) * LANES + l].u64 = e.constants[i];
	Group g;
	g.s = s.data();
	for (unsigned b = 0; b < grid.x; b++)
		for (unsigned first = 0; first < dims.x; first += LANES) {
			memset((void *)s.data(), 0xCB, e.slots * LANES * sizeof(Slot));
			for (unsigned l = 0; l < LANES; l++) {
				s[l].u64 = first + l;
				s[LANES + l].u64 = b;
				g.pc[l] = 0;
				g.done[l] = first + l >= dims.x;
			}
			for (bool any = true; any;)
				if (int r = together(e, parameters, g, any)) return r;
		}
	return 0;
}

} // namespace ptx
