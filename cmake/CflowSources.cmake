# The sources of the library. A source that is not listed here stops the configuration: it would be missing silently.
set(CFLOW_SOURCES
    engine/src/act.c
    engine/src/attention.c
    engine/src/cache.c
    engine/src/cgroup.c
    engine/src/error.c
    engine/src/events.c
    engine/src/exec.c
    engine/src/exec_attention.c
    engine/src/exec_batch.c
    engine/src/exec_batch_attention.c
    engine/src/exec_batch_matrix.c
    engine/src/exec_batch_memory.c
    engine/src/exec_hints.c
    engine/src/exec_matrix.c
    engine/src/exec_routed.c
    engine/src/exec_vector.c
    engine/src/experts.c
    engine/src/fault.c
    engine/src/fill.c
    engine/src/forward.c
    engine/src/gemm.c
    engine/src/gemv.c
    engine/src/hash.c
    engine/src/hints.c
    engine/src/isa.c
    engine/src/kernels.c
    engine/src/kernels_scalar.c
    engine/src/load.c
    engine/src/memory.c
    engine/src/model.c
    engine/src/names.c
    engine/src/options.c
    engine/src/plan.c
    engine/src/pool.c
    engine/src/probe.c
    engine/src/probe_cold.c
    engine/src/probe_loops.c
    engine/src/probe_reads.c
    engine/src/probe_walk.c
    engine/src/quantize.c
    engine/src/reader.c
    engine/src/reader_create.c
    engine/src/reader_threads.c
    engine/src/reader_uring.c
    engine/src/record.c
    engine/src/residency.c
    engine/src/row.c
    engine/src/sample.c
    engine/src/schedule.c
    engine/src/session.c
    engine/src/spans.c
    engine/src/startup.c
    engine/src/storage.c
    engine/src/stream.c
    engine/src/tiles.c
    engine/src/thread.c
    engine/src/topology.c
    engine/src/utf8.c
    engine/src/vector.c
    engine/src/verify.c
    engine/src/walk.c
)
# Of one processor each, with the flags of their instruction set (CflowFlags.cmake).
set(CFLOW_SOURCES_NEONDOT engine/src/attention_neondot.c engine/src/kernels_neondot.c)
set(CFLOW_SOURCES_AVX2 engine/src/attention_avx2.c engine/src/kernels_avx2.c)
set(CFLOW_SOURCES_AVX512 engine/src/kernels_avx512.c)
set(CFLOW_SOURCES_AVX512VNNI engine/src/kernels_avx512vnni.c)

set(x86_sources ${CFLOW_SOURCES_AVX2} ${CFLOW_SOURCES_AVX512} ${CFLOW_SOURCES_AVX512VNNI})
file(GLOB found RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS engine/src/*.c)
list(REMOVE_ITEM found ${CFLOW_SOURCES} ${x86_sources} ${CFLOW_SOURCES_NEONDOT})
if(found)
    list(JOIN found ", " found)
    message(FATAL_ERROR "Not listed in cmake/CflowSources.cmake: ${found}. Add each to one of its lists.")
endif()

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
set(CFLOW_X86 OFF)
set(CFLOW_ARM64 OFF)
if(processor MATCHES "^(x86_64|amd64)$")
    set(CFLOW_X86 ON)
elseif(processor MATCHES "^(aarch64|arm64)$")
    set(CFLOW_ARM64 ON)
endif()
