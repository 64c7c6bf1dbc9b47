"""Translates the PTX of kernels, as LLVM writes it, to C, and compiles that: `ptx_to_c.py LIBRARY_FOLDER`.

For each line BASE of standard input, it creates BASE.c and the library BASE.so from BASE.ptx, and answers with a line:
`ok` or an error, such as an unknown instruction, operand or modifier. One process translates all kernels of a program,
because starting Python takes longer than a translation.

For a line `BASE partial` it creates BASE.partial.c and BASE.partial.so, in which each thread hashes the branches that it
takes (partial warps, see driver.c).
"""

import os
import re
import sys

TYPES = {
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t", "s16": "int16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f32": "float", "f64": "double", "f16": "float", "bf16": "float", "pred": "int",
}
BITS = {"b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "b32": 32, "u32": 32, "s32": 32, "b64": 64,
        "u64": 64, "s64": 64, "f32": 32, "f64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "tf32": 32,
        "pred": 1, "b128": 128}
# Modifiers that are supported, or have no effect here: caches, order of memory, uniform branches, flushed subnormals.
KNOWN = set(BITS) | set("""
global shared local param const generic v2 v4 v8 volatile relaxed acquire release acq_rel gpu sys cta cluster weak nc
L1::evict_first L1::no_allocate L2::128B L1 L2 lu ca cg cs cv wb wt unified to ptr uni sync aligned warp
eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor add min max exch cas inc dec
noftz rn rz rm rp rni rzi rmi rpi rna ftz approx full sat lo hi wide wrap clamp l r NaN x infinite finite notanumber normal
idx up down bfly ballot any all sc proxy async
load store mma row col a b c d red shiftamt
""".split())
FLOATS = {"f16", "bf16", "f32", "f64"}
OUT = {"f32": "FI", "f64": "DI", "f16": "HI", "bf16": "BI"}
IN = {"f32": "F", "f64": "D", "f16": "H", "bf16": "B"}
# The floating-point operations of an instruction on one value.
OPERATIONS = dict.fromkeys("add sub mul div min max sqrt rsqrt rcp sin cos ex2 lg2 tanh".split(), 1) | {"fma": 2, "mad": 2}


class Unknown(Exception):
    pass


def split_operands(text):
    """Splits the operands of an instruction; a list in braces is one operand."""
    out, depth, one = [], 0, ""
    for c in text:
        if c in "{[(":
            depth += 1
        if c in "}])":
            depth -= 1
        if c == "," and depth == 0:
            out.append(one.strip())
            one = ""
        else:
            one += c
    if one.strip():
        out.append(one.strip())
    return out


class Kernel:
    def __init__(self, ptx, is_partial):
        ptx = re.sub(r"//[^\n]*", "", ptx)
        ptx = re.sub(r"/\*.*?\*/", "", ptx, flags=re.S)
        self.ptx = ptx
        self.registers = {}
        self.lines = []
        self.sites = 0
        self.fibers = False
        self.local_bytes = 0
        self.shared_bytes = 0
        self.symbols = {}
        self.globals = []
        self.tables = {}
        self.is_partial = is_partial
        self.n_places = 0
        self.n_branches = 0
        self.n_ops = 0
        self.begin_block()
        self.parse()

    def parse(self):
        head, rest = self.ptx.split(".entry", 1)
        name, rest = rest.split("(", 1)
        self.name = name.strip()
        parameters, rest = rest.split(")", 1)
        offset = 0
        for one in split_operands(parameters):
            size = align = 8
            array = re.search(r"\[(\d+)\]", one)
            if array:
                size = int(array[1])
                found = re.search(r"\.align\s+(\d+)", one)
                align = int(found[1]) if found else 8
            elif re.search(r"\.[busf]32\b", one):
                size = align = 4
            offset = (offset + align - 1) // align * align
            self.symbols[re.split(r"\s+", re.sub(r"\[.*\]", "", one).strip())[-1]] = f"((uint64_t)l->params + {offset})"
            offset += size
        self.declare_globals(head)
        # Only the entry is translated: inlined math functions may follow it.
        start = rest.index("{")
        text = rest[start + 1: rest.index("\n}", start)]
        self.statements(text)

    def declare_globals(self, text):
        for found in re.finditer(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]", text):
            self.shared(found[2], int(found[1]), int(found[3] or 0))
        for found in re.finditer(r"\.(?:global|const)\s+\.align\s+(\d+)\s+\.b(\d+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\}", text):
            n = int(found[2])
            self.globals.append(f"static const uint{n}_t g_{clean(found[3])}[{found[4]}] = {{{found[5]}}};")
            self.symbols[found[3]] = f"((uint64_t)g_{clean(found[3])})"
        for found in re.finditer(r"\.(?:global|const)\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]\s*;", text):
            self.globals.append(f"static uint8_t g_{clean(found[2])}[{found[3]}];")
            self.symbols[found[2]] = f"((uint64_t)g_{clean(found[2])})"
        if ".func" in text:
            raise Unknown(".func")

    def shared(self, name, align, size):
        self.shared_bytes = (self.shared_bytes + align - 1) // align * align
        self.symbols[name] = f"((uint64_t)t->shared + {self.shared_bytes})"
        self.shared_bytes += size

    def statements(self, text):
        for raw in re.split(r"(?<=[;:])\s", text + "\n"):
            raw = raw.strip()
            while raw:
                label = re.match(r"^([\w$]+):\s*", raw)
                if label and not raw.startswith("%"):
                    after = raw[label.end():].strip()
                    if after.startswith(".branchtargets") :
                        self.tables[label[1]] = split_operands(after[len(".branchtargets"):].rstrip("; \n"))
                        raw = ""
                        continue
                    self.pending = label[1]
                    self.lines.append(f"{clean(label[1])}:;")
                    self.begin_block()
                    raw = after
                    continue
                break
            if not raw or raw in "{}":
                continue
            raw = raw.strip("{} \n\t") if raw[0] in "{}" and not raw.startswith("{%") else raw
            statement = raw.rstrip(";").strip()
            if statement:
                self.statement(statement)

    def statement(self, s):
        if s.startswith(".branchtargets"):
            self.tables[self.pending] = split_operands(s[len(".branchtargets"):])
            return
        if s.startswith(".reg"):
            kind = re.match(r"\.reg\s+\.(\w+)\s+(.*)", s, re.S)
            for one in split_operands(kind[2]):
                many = re.match(r"%(\w+)<(\d+)>", one)
                if many:
                    self.registers[many[1]] = (kind[1], True)
                else:
                    self.registers[one.strip().lstrip("%")] = (kind[1], False)
            return
        if s.startswith(".local"):
            found = re.match(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]", s)
            align = int(found[1])
            self.local_bytes = (self.local_bytes + align - 1) // align * align
            self.symbols[found[2]] = f"((uint64_t)t->local + {self.local_bytes})"
            self.local_bytes += int(found[3])
            return
        if s.startswith(".shared"):
            self.declare_globals(s)
            return
        if s.startswith((".loc", ".pragma", ".maxn", ".reqn", ".minn")):
            return
        guard = ""
        found = re.match(r"@(!?)%(\w+)\s+(.*)", s, re.S)
        if found:
            guard, s = f"if ({found[1]}{self.reg('%' + found[2])}) ", found[3]
        parts = re.split(r"\s+", s, maxsplit=1)
        code = self.instruction(parts[0], split_operands(parts[1]) if len(parts) > 1 else [])
        n_ops = operations(parts[0])
        self.n_ops += n_ops
        if guard and n_ops:
            code += f" n_ops += {n_ops};"
        elif n_ops:
            self.n_block_ops += n_ops
            self.lines[self.block_at] = f"n_ops += {self.n_block_ops};"
        ends_block = parts[0].split(".")[0] in ("bra", "brx", "ret", "exit")
        if self.is_partial and ends_block and (found or parts[0].startswith("brx")):
            self.n_branches += 1
            taken = self.reg("%" + found[2]) if found else self.reg(split_operands(parts[1])[0])
            self.lines.append(f"BRANCH({self.n_branches}, {taken});" if found else f"path += {taken}; BRANCH({self.n_branches}, 0);")
        self.lines.append(f"{guard}{{ {code} }}")
        if ends_block:
            self.begin_block()

    def begin_block(self):
        """Begins a basic block. Its first line adds up its operations."""
        self.block_at = len(self.lines)
        self.n_block_ops = 0
        self.lines.append("")

    # --- operands
    def kind_of(self, register):
        name = register.lstrip("%")
        if name in self.registers:
            return self.registers[name][0]
        base = re.match(r"([A-Za-z_$]+)\d+$", name)
        if base and base[1] in self.registers:
            return self.registers[base[1]][0]
        raise Unknown(f"register {register}")

    def reg(self, register):
        special = {
            "%tid.x": "t->tx", "%tid.y": "t->ty", "%tid.z": "t->tz", "%ctaid.x": "t->cx", "%ctaid.y": "t->cy",
            "%ctaid.z": "t->cz", "%ntid.x": "l->bx", "%ntid.y": "l->by", "%ntid.z": "l->bz", "%nctaid.x": "l->gx",
            "%nctaid.y": "l->gy", "%nctaid.z": "l->gz", "%laneid": "t->lane", "%warpid": "((t - t->block->threads) / 32)",
            "%clock64": "0", "%globaltimer": "0", "%lanemask_lt": "((1u << t->lane) - 1)",
            "%lanemask_le": "((2u << t->lane) - 1)", "%lanemask_eq": "(1u << t->lane)",
            "%dynamic_smem_size": "l->shared",
        }
        if register in special:
            return special[register]
        self.kind_of(register)
        self.used.add(register.lstrip("%")) if hasattr(self, "used") else setattr(self, "used", {register.lstrip("%")})
        return "r_" + clean(register.lstrip("%"))

    def value(self, x, kind):
        """Returns an operand as a C expression of the type."""
        x = x.strip()
        if kind == "pred":
            if x.startswith("%"):
                return self.reg(x)
            if x.startswith("!"):
                return "!" + self.reg(x[1:])
            return "1" if x not in ("0", "false") else "0"
        found = re.match(r"^0[fF]([0-9A-Fa-f]{8})$", x)
        if found:
            bits = f"0x{found[1]}u"
            return f"F({bits})" if kind == "f32" else bits
        found = re.match(r"^0[dD]([0-9A-Fa-f]{16})$", x)
        if found:
            bits = f"0x{found[1]}ull"
            return f"D({bits})" if kind == "f64" else bits
        if x.startswith("%"):
            r = self.reg(x)
            return f"{IN[kind]}({r})" if kind in FLOATS else f"(({TYPES[kind]}){r})"
        if re.match(r"^-?(0x[0-9A-Fa-f]+|\d+)U?$", x):
            number = int(x.rstrip("U"), 0)
            if kind in FLOATS:
                return f"{IN[kind]}({number & (2 ** BITS[kind] - 1)}u)"
            return f"(({TYPES[kind]}){number & (2 ** 64 - 1):#x}ull)"
        if x.startswith("-%"):
            return f"(-{self.value(x[1:], kind)})"
        symbol = re.match(r"^([\w$]+)(?:\+(-?\d+))?$", x)
        if symbol and symbol[1] in self.symbols:
            return f"(({TYPES[kind]})({self.symbols[symbol[1]]} + {symbol[2] or 0}))"
        raise Unknown(f"operand {x}")

    def put(self, register, kind, expression):
        if register.strip() == "_":
            return f"(void)({expression});"
        target = self.reg(register)
        if kind == "pred":
            return f"{target} = ({expression}) != 0;"
        if kind in FLOATS:
            return f"{target} = {OUT[kind]}({expression});"
        return f"{target} = ({TYPES[self.unsigned(register)]})({TYPES[kind]})({expression});"

    def unsigned(self, register):
        kind = self.kind_of(register)
        return {"f32": "b32", "f64": "b64"}.get(kind, kind)

    def address(self, x):
        inner = x.strip()[1:-1].strip()
        found = re.match(r"^(%?[\w$.]+)\s*(?:\+\s*(-?\d+))?$", inner)
        if not found:
            raise Unknown(f"address {x}")
        base, add = found[1], found[2] or "0"
        at = self.symbols[base] if base in self.symbols else f"(uint64_t){self.reg(base) if base.startswith('%') else base}"
        return f"({at} + ({add}))"

    def multiply_with_carry(self, name, ops):
        """Returns a product that sets or reads the carry, as sines and cosines of large angles need it."""
        self.registers.setdefault("stub_carry", ("u32", False))
        carry = self.reg("%stub_carry")
        a, b, c = (self.value(x, "u32") for x in ops[1:4])
        product = f"((uint64_t)({a}) * (uint64_t)({b}))"
        if name == "madc.hi.u32":
            return self.put(ops[0], "u32", f"(uint32_t)({product} >> 32) + ({c}) + {carry}")
        # The destination may be an operand, too.
        total = f"uint64_t stub_total = (uint64_t)(uint32_t){product} + ({c});"
        low = self.put(ops[0], "u32", "(uint32_t)stub_total")
        return f"{{ {total} {low} {carry} = (uint32_t)(stub_total >> 32); }}"

    # --- instructions
    def instruction(self, name, ops):
        if name in ("mad.lo.cc.u32", "madc.hi.u32"):
            return self.multiply_with_carry(name, ops)
        m = name.split(".")
        op, mods = m[0], m[1:]
        unknown = [x for x in mods if x not in KNOWN and not re.fullmatch(r"m\d+n\d+k\d+|[0-9A-Z:]+", x)]
        is_float = any(x in FLOATS for x in mods)
        direction = next((x for x in mods if x in ("rz", "rm", "rp")), None)
        rounds_otherwise = direction and is_float and op in ("add", "sub", "mul", "mad", "div", "sqrt", "rcp")
        saturates = "sat" in mods and op != "cvt"
        if unknown or rounds_otherwise or saturates:
            raise Unknown(name)
        kinds = [x for x in mods if x in BITS]
        last = kinds[-1] if kinds else None
        v, put = self.value, self.put
        if op in ("ld", "ldu"):
            return self.load(mods, ops, last)
        if op == "st":
            return self.store(mods, ops, last)
        if op == "mov":
            return self.move(ops, last)
        if op in ("cvta", "isspacep"):
            return put(ops[0], last, v(ops[1], last))
        if op in ("bra", "brx"):
            if op == "brx":
                index = self.reg(ops[0])
                return f"goto *(void *[]){{ @{ops[1]}@ }}[{index}];"
            return f"goto {clean(ops[0])};"
        if op in ("ret", "exit"):
            return "RETURN"
        if op in ("trap", "brkpt"):
            return 'stub_fail("a trap", KERNEL);'
        if op in ("membar", "fence", "nanosleep", "prefetch", "prefetchu", "griddepcontrol", "discard", "applypriority"):
            return ";"
        if op in ("bar", "barrier"):
            if "cluster" in mods or "red" in mods or "warp" not in mods and ops not in ([], ["0"]):
                raise Unknown(f"{name} {', '.join(ops)}")
            self.fibers = True
            if "warp" in mods:
                mask = v(ops[0], "u32")
                return self.collective("SYNC_WARP", mask) + (f" if ({mask} == FULL_MASK) path = 0;" if self.is_partial else "")
            return "barrier(t);" + (" path = 0;" if self.is_partial else "")
        if op in ("atom", "red"):
            return self.atomic(op, mods, ops, last)
        if op == "setp":
            return self.compare(mods, ops, last)
        if op == "selp":
            return put(ops[0], last if last not in FLOATS else {"f32": "b32", "f64": "b64"}.get(last, "b16"),
                       f"{self.value(ops[3], 'pred')} ? {v(ops[1], raw(last))} : {v(ops[2], raw(last))}")
        if op == "cvt":
            return self.convert(mods, ops)
        if last in ("f16x2", "bf16x2"):
            return self.packed(op, mods, ops, last)
        if op in ("add", "sub") and not ("cc" in mods):
            sign = "+" if op == "add" else "-"
            return put(ops[0], last, f"{v(ops[1], last)} {sign} {v(ops[2], last)}")
        if op == "mul":
            if last in FLOATS:
                return put(ops[0], last, f"{v(ops[1], last)} * {v(ops[2], last)}")
            return self.multiply(mods, ops, last, None)
        if op == "mad":
            if last in FLOATS:
                return self.fma(ops, last)
            return self.multiply(mods, ops, last, ops[3])
        if op == "fma":
            if "relu" in mods or "sat" in mods:
                raise Unknown(name)
            if direction:
                if last != "f32":
                    raise Unknown(name)
                a, b, c = (v(x, last) for x in ops[1:4])
                mode = {"rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}[direction]
                return put(ops[0], last, f"fma_rounded({a}, {b}, {c}, {mode})")
            return self.fma(ops, last)
        if op == "div":
            if last in FLOATS:
                return put(ops[0], last, f"{v(ops[1], last)} / {v(ops[2], last)}")
            return put(ops[0], last, f"{v(ops[2], last)} ? {v(ops[1], last)} / {v(ops[2], last)} : 0")
        if op == "rem":
            return put(ops[0], last, f"{v(ops[2], last)} ? {v(ops[1], last)} % {v(ops[2], last)} : {v(ops[1], last)}")
        if op in ("min", "max"):
            a, b = v(ops[1], last), v(ops[2], last)
            if last in FLOATS:
                of = {"min": "fmin", "max": "fmax"}[op]
                if "NaN" in mods:
                    return put(ops[0], last, f"({a} != {a} || {b} != {b}) ? NAN : {of}({a}, {b})")
                return put(ops[0], last, f"{of}({a}, {b})")
            return put(ops[0], last, f"{a} {'<' if op == 'min' else '>'} {b} ? {a} : {b}")
        if op == "abs":
            a = v(ops[1], last)
            return put(ops[0], last, f"fabs({a})" if last in FLOATS else f"{a} < 0 ? -{a} : {a}")
        if op == "neg":
            return put(ops[0], last, f"-{v(ops[1], last)}")
        if op in ("and", "or", "xor"):
            sign = {"and": "&", "or": "|", "xor": "^"}[op]
            return put(ops[0], last, f"{v(ops[1], last)} {sign} {v(ops[2], last)}")
        if op == "not":
            return put(ops[0], last, f"{'!' if last == 'pred' else '~'}{v(ops[1], last)}")
        if op in ("shl", "shr"):
            n, by, bits = v(ops[1], last), v(ops[2], "u32"), BITS[last]
            if op == "shl":
                return put(ops[0], last, f"{by} >= {bits} ? 0 : ({n} << {by})")
            return put(ops[0], last, f"({n} >> ({by} >= {bits} ? {bits - 1} : {by})) {'' if last[0] == 's' else f'* ({by} < {bits})'}")
        if op == "shf":
            a, b, c = v(ops[1], "u32"), v(ops[2], "u32"), v(ops[3], "u32")
            c = f"({c} & 31)" if "wrap" in mods else f"({c} > 32 ? 32 : {c})"
            both = f"((uint64_t){b} << 32 | {a})"
            if "l" in mods:
                return put(ops[0], "u32", f"(uint32_t)(({both} << {c}) >> 32)")
            return put(ops[0], "u32", f"(uint32_t)({both} >> {c})")
        if op == "prmt":
            if mods != ["b32"]:
                raise Unknown(name)
            return put(ops[0], "u32", f"prmt({v(ops[1], 'u32')}, {v(ops[2], 'u32')}, {v(ops[3], 'u32')})")
        if op == "bfe":
            a, at, n = v(ops[1], last), v(ops[2], "u32"), v(ops[3], "u32")
            if last[0] == "s":
                raise Unknown(name)
            return put(ops[0], last, f"({at} & 255) >= {BITS[last]} ? 0 : ({a} >> ({at} & 255)) & (({n} & 255) >= {BITS[last]} ? ~({TYPES[last]})0 : ((({TYPES[last]})1 << ({n} & 255)) - 1))")
        if op == "bfi":
            a, b, at, n = v(ops[1], last), v(ops[2], last), v(ops[3], "u32"), v(ops[4], "u32")
            mask = f"(({n} >= {BITS[last]} ? ~({TYPES[last]})0 : (({TYPES[last]})1 << {n}) - 1) << {at})"
            return put(ops[0], last, f"({b} & ~{mask}) | (({a} << {at}) & {mask})")
        if op == "bfind":
            a = v(ops[1], "u64" if BITS[last] == 64 else "u32")
            lead = "63 - __builtin_clzll" if BITS[last] == 64 else "31 - __builtin_clz"
            if "shiftamt" in mods or last[0] == "s":
                raise Unknown(name)
            return put(ops[0], "u32", f"{a} ? {lead}({a}) : 0xffffffffu")
        if op == "clz":
            a = v(ops[1], "u64" if BITS[last] == 64 else "u32")
            return put(ops[0], "u32", f"{a} ? {'__builtin_clzll' if BITS[last] == 64 else '__builtin_clz'}({a}) : {BITS[last]}")
        if op == "popc":
            return put(ops[0], "u32", f"__builtin_popcountll({v(ops[1], 'u64' if BITS[last] == 64 else 'u32')})")
        if op == "brev":
            if BITS[last] != 32:
                raise Unknown(name)
            return put(ops[0], "u32", f"brev32({v(ops[1], 'u32')})")
        if op in ("sqrt", "rsqrt", "rcp", "sin", "cos", "ex2", "lg2", "tanh"):
            a = v(ops[1], last)
            f = "" if last == "f64" else "f"
            text = {"sqrt": f"sqrt{f}({a})", "rsqrt": f"1 / sqrt{f}({a})", "rcp": f"1 / {a}", "sin": f"sin{f}({a})",
                    "cos": f"cos{f}({a})", "ex2": f"exp2{f}({a})", "lg2": f"log2{f}({a})", "tanh": f"tanh{f}({a})"}[op]
            return put(ops[0], last, text)
        if op == "copysign":
            return put(ops[0], last, f"copysign({v(ops[2], last)}, {v(ops[1], last)})")
        if op == "testp":
            test = {"infinite": "isinf", "finite": "isfinite", "notanumber": "isnan", "normal": "isnormal"}[mods[0]]
            return put(ops[0], "pred", f"{test}({v(ops[1], last)})")
        if op == "lop3":
            a, b, c, table = (v(x, "u32") for x in ops[1:5])
            terms = " | ".join(
                f"((({table} >> {i}) & 1) ? ({'' if i & 4 else '~'}{a} & {'' if i & 2 else '~'}{b} & {'' if i & 1 else '~'}{c}) : 0)"
                for i in range(8))
            return put(ops[0], "u32", terms)
        if op in ("shfl", "vote", "activemask", "redux", "elect", "match"):
            return self.together(op, mods, ops, last)
        if op == "wmma":
            return self.wmma(name, mods, ops)
        raise Unknown(name)

    def fma(self, ops, kind):
        a, b, c = (self.value(x, kind) for x in ops[1:4])
        of = "fma" if kind == "f64" else "fmaf" if kind == "f32" else "fmaf"
        return self.put(ops[0], kind, f"{of}({a}, {b}, {c})")

    def multiply(self, mods, ops, kind, plus):
        a, b, bits = self.value(ops[1], kind), self.value(ops[2], kind), BITS[kind]
        wide = {16: "32", 32: "64"}.get(bits)
        sign = "s" if kind[0] == "s" else "u"
        if "wide" in mods:
            to = sign + wide
            c = f" + {self.value(plus, to)}" if plus else ""
            return self.put(ops[0], to, f"({TYPES[to]}){a} * {b}{c}")
        c = f" + {self.value(plus, kind)}" if plus else ""
        if "hi" in mods:
            big = {16: f"{'' if sign == 's' else 'u'}int32_t", 32: f"{'' if sign == 's' else 'u'}int64_t", 64: f"{'' if sign == 's' else 'unsigned '}__int128"}[bits]
            return self.put(ops[0], kind, f"({TYPES[kind]})((({big}){a} * {b}) >> {bits}){c}")
        # The low half is computed in unsigned arithmetic, because C does not define signed overflow.
        u = "u" + kind[1:]
        return self.put(ops[0], kind, f"({TYPES[u]})({self.value(ops[1], u)} * (uint64_t){self.value(ops[2], u)}){c}")

    def packed(self, op, mods, ops, kind):
        one = kind[:-2]
        half = lambda x, i: f"{IN[one]}((uint16_t)({self.value(x, 'u32')} >> {16 * i}))"
        out = []
        for i in range(2):
            a = [half(x, i) for x in ops[1:]]
            text = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "fma": "fmaf({0}, {1}, {2})",
                    "min": "fminf({0}, {1})", "max": "fmaxf({0}, {1})", "neg": "-{0}", "abs": "fabsf({0})"}.get(op)
            if text is None:
                raise Unknown(".".join([op] + mods))
            out.append(f"{OUT[one]}({text.format(*a)})")
        return self.put(ops[0], "u32", f"PACK({out[0]}, {out[1]})")

    def compare(self, mods, ops, kind):
        of = mods[0]
        sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
                "hs": ">=", "equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
        a, b = self.value(ops[1], kind), self.value(ops[2], kind)
        if of in ("num", "nan"):
            test = f"({a} != {a} || {b} != {b})"
            text = f"!{test}" if of == "num" else test
        elif kind in FLOATS and of.endswith("u") and of != "u":
            text = f"!({a} == {a} && {b} == {b}) || {a} {sign[of]} {b}"
        elif kind in FLOATS and of == "ne":
            text = f"{a} == {a} && {b} == {b} && {a} != {b}"
        else:
            text = f"{a} {sign[of]} {b}"
        with_other = next((x for x in mods[1:] if x in ("and", "or", "xor")), None)
        if with_other:
            text = f"({text}) {dict(zip(('and', 'or', 'xor'), '&|^'))[with_other]} {self.value(ops[3], 'pred')}"
        targets = ops[0].split("|")
        if len(targets) == 2:
            return f"int p = ({text}) != 0; {self.put(targets[0], 'pred', 'p')} {self.put(targets[1], 'pred', '!p')}"
        return self.put(targets[0], "pred", text)

    def convert(self, mods, ops):
        kinds = [x for x in mods if x in BITS]
        if len(kinds) == 1 and "tf32" in mods[-2:]:
            kinds = ["tf32", "f32"]
        to, of = kinds[0], kinds[1]
        mode = next((x for x in mods if x in ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna")), None)
        if mode in ("rz", "rm", "rp") and (to in FLOATS or to in ("f16x2", "bf16x2")):
            raise Unknown(f"cvt {mode} to {to}")
        if to in ("f16x2", "bf16x2"):
            high, low = self.value(ops[1], of), self.value(ops[2], of)
            if "relu" in mods:
                raise Unknown("cvt relu")
            return self.put(ops[0], "u32", f"PACK({OUT[to[:-2]]}({low}), {OUT[to[:-2]]}({high}))")
        if to == "tf32":
            return self.put(ops[0], "u32", f"TF({self.value(ops[1], 'f32')})")
        a = self.value(ops[1], of)
        whole = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
        if of in FLOATS and to in FLOATS:
            text = f"{whole[mode]}({a})" if mode in whole else a
            if "sat" in mods:
                text = f"sat({text})"
            return self.put(ops[0], to, text)
        if of in FLOATS:
            text = f"{whole[mode]}((double){a})"
            bits = BITS[to]
            if to[0] == "s":
                return self.put(ops[0], to, f"to_s64({text}, {-2.0 ** (bits - 1)!r}, {2.0 ** (bits - 1) - (0 if bits == 64 else 1)!r})")
            return self.put(ops[0], to, f"to_u64({text}, {2.0 ** bits - (0 if bits == 64 else 1)!r})")
        if to in FLOATS:
            return self.put(ops[0], to, f"({'double' if to == 'f64' else 'float'}){a}")
        if "sat" in mods:
            raise Unknown("cvt sat of integers")
        return self.put(ops[0], to, a)

    def space(self, mods):
        return next((x for x in mods if x in ("global", "shared", "local", "param", "const")), "generic")

    def load(self, mods, ops, kind):
        n = next((int(x[1]) for x in mods if x in ("v2", "v4", "v8")), 1)
        targets = split_operands(ops[0].strip()[1:-1]) if n > 1 or ops[0].startswith("{") else [ops[0]]
        width = BITS[kind] // 8
        plain = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}.get(kind, kind)
        code = f"uint64_t at = {self.address(ops[1])}; "
        if self.space(mods) != "param":
            code += f"ALIGNED(at, {width * len(targets)}); "
        if self.space(mods) in ("global", "generic"):
            code += f"REC({self.site()}, at, {width * len(targets)}, 0); "
        volatile = "volatile " if "volatile" in mods or "relaxed" in mods or "acquire" in mods else ""
        if kind == "b128":
            raise Unknown("ld.b128")
        for i, target in enumerate(targets):
            code += f"{TYPES[plain]} x{i} = *({volatile}{TYPES[plain]} *)(at + {i * width}); "
        for i, target in enumerate(targets):
            code += self.put(target, plain, f"x{i}") + " "
        return code

    def store(self, mods, ops, kind):
        n = next((int(x[1]) for x in mods if x in ("v2", "v4", "v8")), 1)
        values = split_operands(ops[1].strip()[1:-1]) if n > 1 or ops[1].startswith("{") else [ops[1]]
        width = BITS[kind] // 8
        plain = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}.get(kind, kind)
        code = f"uint64_t at = {self.address(ops[0])}; ALIGNED(at, {width * len(values)}); "
        if self.space(mods) in ("global", "generic"):
            code += f"REC({self.site()}, at, {width * len(values)}, 1); "
        volatile = "volatile " if "volatile" in mods or "relaxed" in mods or "release" in mods else ""
        stores = "".join(f"*({volatile}{TYPES[plain]} *)(at + {i * width}) = {self.value(value, plain)}; "
                         for i, value in enumerate(values))
        if self.space(mods) in ("global", "generic"):
            return f"{code}if (!DISCARDED(at)) {{ {stores}}} "
        return code + stores

    def site(self):
        self.sites += 1
        return self.sites - 1

    def move(self, ops, kind):
        if ops[0].startswith("{"):
            targets = split_operands(ops[0][1:-1])
            width = BITS[kind] // len(targets)
            code = f"uint64_t all = {self.value(ops[1], 'b' + kind[1:])}; "
            for i, target in enumerate(targets):
                code += self.put(target, f"b{width}", f"all >> {i * width}") + " "
            return code
        if ops[1].startswith("{"):
            parts = split_operands(ops[1][1:-1])
            width = BITS[kind] // len(parts)
            text = " | ".join(f"(uint64_t){self.value(x, f'b{width}')} << {i * width}" for i, x in enumerate(parts))
            return self.put(ops[0], "b" + kind[1:] if kind != "pred" else kind, text)
        if kind == "pred":
            return self.put(ops[0], kind, self.value(ops[1], kind))
        if ops[1].startswith("%") and "." in ops[1] or ops[1] in ("%laneid", "%warpid", "%clock64", "%globaltimer"):
            return self.put(ops[0], raw(kind), self.reg(ops[1]))
        return self.put(ops[0], raw(kind), self.value(ops[1], raw(kind)))

    def atomic(self, op, mods, ops, kind):
        what = next(x for x in mods if x in ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"))
        target = ops[0] if op == "atom" else "_"
        rest = ops[1:] if op == "atom" else ops
        c = TYPES[kind]
        code = f"{c} *at = ({c} *){self.address(rest[0])}; "
        if self.space(mods) in ("global", "generic"):
            code += f"REC({self.site()}, at, {BITS[kind] // 8}, 1); {c} copy; if (DISCARDED(at)) {{ copy = *at; at = &copy; }} "
        a = self.value(rest[1], kind)
        if kind in ("f16x2", "bf16x2") or "v2" in mods or "v4" in mods:
            raise Unknown(".".join([op] + mods))
        if kind in ("f16", "bf16"):
            if what != "add":
                raise Unknown(".".join([op] + mods))
            half = f"uint16_t *half = (uint16_t *){self.address(rest[0])}; uint16_t old = *half; "
            half += f"if (!DISCARDED(half)) *half = {OUT[kind]}({IN[kind]}(old) + {a}); "
            return half + (self.put(target, "b16", "old") if target != "_" else "")
        if kind in FLOATS:
            if what != "add":
                raise Unknown(".".join([op] + mods))
            return code + f"{c} old = *at; *at = old + {a}; " + self.put(target, kind, "old")
        if what == "cas":
            code += f"{c} old = {a}; __atomic_compare_exchange_n(at, &old, {self.value(rest[2], kind)}, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); "
        elif what in ("min", "max"):
            sign = "<" if what == "min" else ">"
            code += f"{c} old = *at, new = {a}; if (new {sign} old) *at = new; "
        elif what == "exch":
            code += f"{c} old = __atomic_exchange_n(at, {a}, __ATOMIC_SEQ_CST); "
        elif what in ("inc", "dec"):
            raise Unknown(what)
        else:
            code += f"{c} old = __atomic_fetch_{what}(at, {a}, __ATOMIC_SEQ_CST); "
        return code + (self.put(target, kind, "old") if target != "_" else "")

    def collective(self, op, mask):
        self.fibers = True
        self.n_places += 1
        return f"collective(t, {op}, {self.n_places}, {mask});"

    def together(self, op, mods, ops, kind):
        v = self.value
        if op != "activemask" and "sync" not in mods:
            raise Unknown(".".join([op] + mods))
        if op == "shfl":
            how = next(x for x in mods if x in ("idx", "up", "down", "bfly")).upper()
            targets = ops[0].split("|")
            code = f"t->in[0] = {v(ops[1], 'u32')}; t->in[1] = {v(ops[2], 'u32')}; t->in[2] = {v(ops[3], 'u32')}; {self.collective('SHFL_' + how, v(ops[4], 'u32'))} "
            code += self.put(targets[0], "u32", "t->out[0]")
            return code + (self.put(targets[1], "pred", "t->out[1]") if len(targets) > 1 else "")
        if op == "vote":
            code = f"t->in[0] = {v(ops[1], 'pred')}; {self.collective('BALLOT', v(ops[2], 'u32'))} "
            text, to = {"ballot": ("t->out[0]", "u32"), "any": ("t->out[0] != 0", "pred"), "all": ("t->out[0] == t->out[1]", "pred"),
                        "uni": ("t->out[0] == 0 || t->out[0] == t->out[1]", "pred")}[next(x for x in mods if x in ("ballot", "any", "all", "uni"))]
            return code + self.put(ops[0], to, text)
        if op == "activemask":
            path = "t->path = path; " if self.is_partial else ""
            return path + self.collective("ACTIVE_MASK", 0) + " " + self.put(ops[0], "u32", "t->out[1]")
        if op == "redux":
            how = next(x for x in mods if x in ("add", "min", "max", "and", "or", "xor")).upper()
            return f"t->in[0] = {v(ops[1], 'u32')}; t->in[1] = {int(kind[0] == 's')}; {self.collective('REDUX_' + how, v(ops[2], 'u32'))} " + self.put(ops[0], "u32", "t->out[0]")
        if op == "elect":
            targets = ops[0].split("|")
            return f"t->in[0] = 1; {self.collective('BALLOT', v(ops[1], 'u32'))} " + self.put(targets[1], "pred", "__builtin_ctz(t->out[1]) == t->lane")
        raise Unknown(op)

    def wmma(self, name, mods, ops):
        """Translates operations on tiles of a warp. Register i of lane l holds element 32 i + l of the tile, row by
        row (for halves, the elements of 2 i and 2 i + 1)."""
        shape = next(re.match(r"m(\d+)n(\d+)k(\d+)", x) for x in mods if re.match(r"m\d+n\d+k\d+", x))
        m, n, k = (int(x) for x in shape.groups())
        lists = lambda x: split_operands(x.strip()[1:-1])
        v = self.value
        if mods[0] == "mma":
            kinds = mods[mods.index(shape[0]) + 1:]
            d, a, b, c = (lists(x) for x in ops)
            of = {"tf32": 2, "bf16": 1}.get(kinds[1] if len(kinds) > 2 else "f16", 0)
            if kinds[0] != "f32" or "row" not in mods or len(c) != 8:
                raise Unknown(name)
            code = "".join(f"t->in[{i}] = {v(x, 'u32')}; " for i, x in enumerate(a[:8]))
            code += "".join(f"t->in[{8 + i}] = {v(x, 'u32')}; " for i, x in enumerate(b[:8]))
            code += "".join(f"t->in[{16 + i}] = {v(x, 'u32')}; " for i, x in enumerate(c))
            code += f"t->in[24] = {m}; t->in[25] = {n}; t->in[26] = {k}; t->in[27] = {of}; {self.collective('WMMA_F32', 'FULL_MASK')} "
            return code + "".join(self.put(x, "u32", f"t->out[{i}]") for i, x in enumerate(d))
        part = mods[1]
        rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[part]
        kind = next(x for x in reversed(mods) if x in BITS)
        is_row = "row" in mods
        registers = lists(ops[0] if mods[0] == "load" else ops[1])
        at = self.address(ops[1] if mods[0] == "load" else ops[0])
        stride = v(ops[2], "u32") if len(ops) > 2 else str(columns if is_row else rows)
        size = BITS[kind] // 8
        code = f"uint64_t at = {at}; uint64_t stride = {stride}; "
        place = lambda e: f"(at + {size} * ({'' if is_row else ''}" + (
            f"(({e}) / {columns}) * stride + ({e}) % {columns}" if is_row else f"(({e}) % {columns}) * stride + ({e}) / {columns}") + "))"
        n_elements = rows * columns // 32
        per = 2 if size == 2 else 1
        for i, register in enumerate(registers):
            if i * per >= n_elements:
                code += self.put(register, "u32", "0") + " " if mods[0] == "load" else ""
                continue
            e = [f"{32 * (i * per + j)} + t->lane" for j in range(per)]
            c = "uint16_t" if size == 2 else "uint32_t"
            if mods[0] == "load":
                parts = [f"*({c} *){place(x)}" for x in e]
                code += self.put(register, "u32", parts[0] if per == 1 else f"PACK({parts[0]}, {parts[1]})") + " "
            else:
                for j, x in enumerate(e):
                    code += f"if (!DISCARDED(at)) *({c} *){place(x)} = {v(register, 'u32')} >> {16 * j if per == 2 else 0}; "
        # All lanes must have loaded or stored their elements before one of them continues.
        return code + self.collective("WMMA_TILE", "FULL_MASK")

    def c(self):
        names = {}
        for register in sorted(getattr(self, "used", set())):
            kind = self.unsigned("%" + register)
            names.setdefault("int" if kind == "pred" else TYPES[kind], []).append("r_" + clean(register) + " = 0")
        lines = []
        for line in self.lines:
            table = re.search(r"@([\w$]+)@", line)
            if table:
                line = line.replace(table[0], ", ".join(f"&&{clean(x)}" for x in self.tables[table[1]]))
            lines.append(line)
        out = [f'#define KERNEL "{self.name}"', '#include "ptx.h"'] + self.globals
        out.append("#define RETURN t->n_ops = n_ops; return;")
        out.append("static void body(Launch *l, Thread *t) {")
        out.append("long n_ops = 0;")
        if self.is_partial:
            out.append("uint64_t path = 0;")
        out += [f"{kind} {', '.join(x)};" for kind, x in names.items()]
        out += lines + ["}"]
        out.append(f"static const Code code = {{KERNEL, body, {self.shared_bytes}, {self.sites}, {int(self.fibers)}, {self.local_bytes}}};")
        out.append("void run(Launch *l) { run_blocks(l, &code); }")
        return "\n".join(out) + "\n"


def operations(name):
    """Returns the floating-point operations of an instruction, per thread."""
    op, *mods = name.split(".")
    shape = next((re.fullmatch(r"m(\d+)n(\d+)k(\d+)", x) for x in mods if re.fullmatch(r"m\d+n\d+k\d+", x)), None)
    if shape and mods[0] == "mma":
        m, n, k = (int(x) for x in shape.groups())
        return 2 * m * n * k // 32
    kind = next((x for x in reversed(mods) if x in BITS), None)
    pairs = kind in ("f16x2", "bf16x2")
    return OPERATIONS.get(op, 0) * (2 if pairs else 1) if pairs or kind in FLOATS else 0


def raw(kind):
    return {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}.get(kind, kind)


def clean(name):
    return re.sub(r"\W", "_", name)


# Most kernels run for milliseconds, so compilation takes longest: `-O1` is faster than `-O2` in all.
FLAGS = "-w -O1 -fwrapv -fno-strict-aliasing -ffp-contract=off -march=native -shared -fPIC".split()


def build(base, is_partial, folder):
    # Another process may build the same kernel, so files get their names when they are complete.
    to = base + ".partial" if is_partial else base
    source, library = f"{to}.{os.getpid()}.c", f"{to}.{os.getpid()}.tmp"
    with open(base + ".ptx") as ptx, open(source, "w") as file:
        file.write(Kernel(ptx.read(), is_partial).c())
    libraries = ["-L" + folder, "-l:libcuda.so.1", "-lm"]
    status = os.spawnvp(os.P_WAIT, "cc", ["cc", *FLAGS, "-I" + folder, "-o", library, source, *libraries])
    if status:
        raise Unknown(f"cc ended with status {status}: see {source}")
    os.rename(source, to + ".c")
    os.rename(library, to + ".so")


def main():
    for line in sys.stdin:
        try:
            base, partial = re.fullmatch(r"(.*?)( partial)?", line.rstrip("\n")).groups()
            build(base, partial is not None, sys.argv[1])
            print("ok", flush=True)
        except Exception as error:  # The driver ends its process with this answer.
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
