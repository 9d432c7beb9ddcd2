//! Machine code as it is kept, and in memory.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedRelocTarget};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc, default_libcall_names};
use serde::{Deserialize, Serialize};

use super::Given;
use super::emit::{Source, callee, emit, reached, signature};
use super::facts::{self, Facts};
use crate::instruction::Instruction;

/// The machine code of a program's functions. It can lie anywhere.
#[derive(Serialize, Deserialize)]
pub(super) struct Made(Vec<MadeFunction>);

/// The machine code of a function.
#[derive(Serialize, Deserialize)]
struct MadeFunction {
    /// The first instruction of the program's function.
    at: usize,
    alignment: u64,
    bytes: Vec<u8>,
    calls: Vec<CallOf>,
}

/// A call of another function.
#[derive(Serialize, Deserialize)]
struct CallOf {
    /// Where in the bytes the other function's address goes, and how.
    offset: u32,
    kind: Reloc,
    addend: i64,
    /// The function's number in [`Made`].
    to: u32,
}

/// The memory of machine code. It is freed when this is dropped.
pub(super) struct Text(Option<JITModule>);

// SAFETY: once the code is complete, the module is only kept until it is dropped.
unsafe impl Send for Text {}
// SAFETY: as above.
unsafe impl Sync for Text {}

impl Drop for Text {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: `Translated` has the only pointers to the code, and is dropped with this.
            unsafe { module.free_memory() };
        }
    }
}

/// Creates machine code for the functions that begin at `starts`, and for those that they call. `None` if a function
/// writes the frame pointer, or if Cranelift does not support this processor.
pub(super) fn make(
    code: &[Instruction],
    starts: &[usize],
    given: &Given,
    seldom: &[bool],
) -> Option<Made> {
    let functions = reached(code, starts)?;
    let mut module = module()?;
    let ids = declare(&mut module, functions.keys().copied())?;
    let mut context = module.make_context();
    let mut scratch = FunctionBuilderContext::new();
    let called: BTreeSet<usize> =
        (0..).zip(code).filter_map(|(at, instruction)| callee(*instruction, at)).collect();
    let mut made = Vec::new();
    for (&at, leaders) in &functions {
        let source = Source { code, leaders, given, seldom };
        let facts = match called.contains(&at) {
            true => Facts::none(at),
            false => Facts::of_hook(at, given),
        };
        let starts = facts::known(&source, at, facts);
        emit(&mut module, &mut context, &mut scratch, (source, starts), at, &ids);
        made.push(compile(&module, &mut context, at)?);
        module.clear_context(&mut context);
    }
    Some(Made(made))
}

/// Declares the functions of a program. The number of each is its place in the order of their first instructions.
fn declare(
    module: &mut JITModule,
    functions: impl Iterator<Item = usize>,
) -> Option<BTreeMap<usize, FuncId>> {
    let signature = signature(module, 6, true);
    let declare = |at| {
        let name = format!("at_{at}");
        Some((at, module.declare_function(&name, Linkage::Local, &signature).ok()?))
    };
    functions.map(declare).collect()
}

/// Compiles the function that begins at an instruction. It refers to nothing but other functions of the program.
fn compile(module: &JITModule, context: &mut Context, at: usize) -> Option<MadeFunction> {
    context.compile(module.isa(), &mut ControlPlane::default()).ok()?;
    let compiled = context.compiled_code()?;
    let mut calls = Vec::new();
    for reloc in compiled.buffer.relocs() {
        let FinalizedRelocTarget::ExternalName(name) = &reloc.target else { return None };
        let cranelift_codegen::ir::ExternalName::User(name) = *name else { return None };
        let to = context.func.params.user_named_funcs().get(name)?.index;
        let (offset, kind, addend) = (reloc.offset, reloc.kind, reloc.addend);
        calls.push(CallOf { offset, kind, addend, to });
    }
    let alignment = compiled.buffer.alignment.into();
    Some(MadeFunction { at, alignment, bytes: compiled.code_buffer().to_vec(), calls })
}

/// Puts machine code into memory. Returns the address of each function. `None` if there is no room.
pub(super) fn place(made: &Made) -> Option<(Text, Vec<(usize, *const u8)>)> {
    let mut module = module()?;
    let ids = declare(&mut module, made.0.iter().map(|function| function.at))?;
    for function in &made.0 {
        let mut relocs = Vec::new();
        for call in &function.calls {
            let to = made.0.get(call.to as usize)?.at;
            let name = (*ids.get(&to)?).into();
            let (offset, kind, addend) = (call.offset, call.kind, call.addend);
            relocs.push(ModuleReloc { offset, kind, name, addend });
        }
        let id = *ids.get(&function.at)?;
        module.define_function_bytes(id, function.alignment, &function.bytes, &relocs).ok()?;
    }
    module.finalize_definitions().ok()?;
    let entries = ids.iter().map(|(at, id)| (*at, module.get_finalized_function(*id))).collect();
    Some((Text(Some(module)), entries))
}

/// For which processor machine code is made, and how.
pub(super) fn target() -> Option<String> {
    let module = module()?;
    let isa = module.isa();
    let flags: Vec<String> = isa.isa_flags().iter().map(ToString::to_string).collect();
    Some(format!("{} {} {}", isa.triple(), isa.flags(), flags.join(" ")))
}

/// Addresses that are reserved for a program's machine code. Functions call each other over distances of 32 bits, so
/// they must not lie apart. Code that does not fit is not made.
const TEXT_BYTES: usize = 1 << 28;

fn module() -> Option<JITModule> {
    let mut flags = settings::builder();
    flags.set("opt_level", "speed").ok()?;
    // A function with a large frame must not step over the guard page of the host's stack.
    flags.set("enable_probestack", "true").ok()?;
    flags.set("probestack_strategy", "inline").ok()?;
    flags.set("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }).ok()?;
    let isa = cranelift_native::builder().ok()?.finish(settings::Flags::new(flags)).ok()?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    builder.memory_provider(Box::new(ArenaMemoryProvider::new_with_size(TEXT_BYTES).ok()?));
    Some(JITModule::new(builder))
}
