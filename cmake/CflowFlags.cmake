# Compiler flags: `cflow_flags` for every target, then those of single sources; checks of the options.
set(known_mutants delay_off_by_one drop_last_columns hints_elsewhere read_all_experts read_consumed_early
    stripes_out_of_order unchecked_regions unfused walk_backwards wrong_expert_read wrong_tile_order)

add_library(cflow_flags INTERFACE)

# -ffp-contract=off: the same source gives the same bits at every optimisation level and on every compiler; kernels
# that want a fused multiply-add say so. errno and floating-point traps are not
# used, and would keep loops from being vectorised.
set(base_flags -fno-math-errno -fno-trapping-math -ffp-contract=off)
target_compile_options(cflow_flags INTERFACE ${base_flags}
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes)
if(CFLOW_WERROR)
    target_compile_options(cflow_flags INTERFACE -Werror)
endif()

if(CFLOW_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "CFLOW_FUZZ=ON needs clang, which brings libFuzzer; the compiler is ${CMAKE_C_COMPILER}.")
    endif()
    # The coverage that the fuzzer is led by is that of the sources which read files and plan by them. float-cast-overflow:
    # numbers of a file that become integers.
    set(CFLOW_SANITIZE address,undefined,float-cast-overflow,fuzzer-no-link)
endif()
if(CFLOW_SANITIZE)
    if(NOT CFLOW_SANITIZE MATCHES "^[a-z-]+(,[a-z-]+)*$")
        message(FATAL_ERROR "CFLOW_SANITIZE='${CFLOW_SANITIZE}': expected names and commas, e.g. address,undefined.")
    endif()
    set(sanitize_flags -fsanitize=${CFLOW_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
    target_compile_options(cflow_flags INTERFACE ${sanitize_flags})
    target_link_options(cflow_flags INTERFACE ${sanitize_flags})
endif()

if(CFLOW_MUTANT)
    if(NOT CFLOW_MUTANT IN_LIST known_mutants)
        list(JOIN known_mutants ", " names)
        message(FATAL_ERROR "CFLOW_MUTANT='${CFLOW_MUTANT}' is not a known mutant. Known: ${names}.")
    endif()
endif()

# Against faults of memory: canaries, checked forms of libc's functions, and addresses that are resolved once, when the
# library is loaded, and then read-only. The same folder names wherever it is built, so that the same sources give the
# same bytes.
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    set(prefix_flags -ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_CURRENT_BINARY_DIR}=build)
    target_compile_options(cflow_flags INTERFACE ${prefix_flags})
    if(NOT CFLOW_SANITIZE)
        target_compile_options(cflow_flags INTERFACE -fstack-protector-strong
            "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    endif()
    if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
        target_link_options(cflow_flags INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--build-id=sha1)
    endif()
endif()

# Per source. The vector kernels are templates, inlined by force in many variants: instrumented they take minutes to
# compile unless optimised less, and without the checks that AddressSanitizer makes redundant, or nearly so.
set(optimisation -O3)
set(scalar_optimisation -O2)
set(scalar_flags -fno-tree-vectorize)
set(vector_flags)
if(CFLOW_SANITIZE)
    set(optimisation -O1)
    set(scalar_optimisation -O1)
    if(CFLOW_SANITIZE MATCHES "address" AND CFLOW_SANITIZE MATCHES "undefined")
        list(APPEND vector_flags -fno-sanitize=null,object-size,pointer-overflow)
    endif()
    if(CFLOW_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        list(APPEND vector_flags --param=asan-instrumentation-with-call-threshold=0)
    endif()
endif()
# Kernels read mapped memory, about which AddressSanitizer knows nothing; under sanitizers they have tests of their own.
# Without optimisation they compile in seconds, and the matrices of fuzzing are small.
if(CFLOW_FUZZ)
    set(vector_flags -fno-sanitize=all -O0)
    list(APPEND scalar_flags ${vector_flags})
endif()
set_source_files_properties(${CFLOW_SOURCES} PROPERTIES COMPILE_OPTIONS "${optimisation}")
# The scalar kernels are the readable reference that speed is compared with: no vectorisation there.
set_source_files_properties(engine/src/kernels_scalar.c PROPERTIES COMPILE_OPTIONS
    "${scalar_optimisation};${scalar_flags}")

set(avx2_flags ${optimisation} ${vector_flags} -mavx2 -mfma -mf16c)
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(avx512vnni_flags ${avx512_flags} -mavx512vnni)
if(CFLOW_SIMDE)
    if(NOT CFLOW_X86)
        message(FATAL_ERROR "CFLOW_SIMDE=ON needs an x86-64 target; this one is ${CMAKE_SYSTEM_PROCESSOR}.")
    endif()
    include(CheckIncludeFile)
    check_include_file(simde/x86/avx512.h CFLOW_HAVE_SIMDE)
    if(NOT CFLOW_HAVE_SIMDE)
        message(FATAL_ERROR "CFLOW_SIMDE=ON needs the SIMDe headers (Debian, Ubuntu: apt install libsimde-dev).")
    endif()
    target_compile_definitions(cflow_flags INTERFACE CFLOW_SIMDE)
    # Emulated 64-byte vectors as arguments: gcc remarks on an ABI that nothing here depends on.
    target_compile_options(cflow_flags INTERFACE -Wno-psabi)
    set(avx512_flags ${avx2_flags} -O1) # the compile time again
    set(avx512vnni_flags ${avx512_flags})
endif()
if(CFLOW_X86)
    set_source_files_properties(${CFLOW_SOURCES_AVX2} PROPERTIES COMPILE_OPTIONS "${avx2_flags}")
    set_source_files_properties(${CFLOW_SOURCES_AVX512} PROPERTIES COMPILE_OPTIONS "${avx512_flags}")
    set_source_files_properties(${CFLOW_SOURCES_AVX512VNNI} PROPERTIES COMPILE_OPTIONS "${avx512vnni_flags}")
    list(APPEND CFLOW_SOURCES ${x86_sources})
elseif(CFLOW_ARM64)
    set_source_files_properties(${CFLOW_SOURCES_NEONDOT} PROPERTIES COMPILE_OPTIONS
        "${optimisation};${vector_flags};-march=armv8.2-a+dotprod")
    list(APPEND CFLOW_SOURCES ${CFLOW_SOURCES_NEONDOT})
endif()

# Only the sources that a mutant changes get its macro: from one mutant to the next the others need no compiling. A macro
# in a header may be anybody's.
if(CFLOW_MUTANT)
    string(TOUPPER "CFLOW_MUTANT_${CFLOW_MUTANT}" macro)
    file(GLOB headers engine/src/*.h engine/src/*.inl)
    set(mutated)
    foreach(source IN LISTS headers CFLOW_SOURCES)
        file(STRINGS ${source} lines REGEX "${macro}")
        if(lines AND source IN_LIST headers)
            set(mutated ${CFLOW_SOURCES})
        elseif(lines)
            list(APPEND mutated ${source})
        endif()
    endforeach()
    if(NOT mutated)
        message(FATAL_ERROR "CFLOW_MUTANT='${CFLOW_MUTANT}': no source mentions ${macro}.")
    endif()
    set_property(SOURCE ${mutated} APPEND PROPERTY COMPILE_DEFINITIONS ${macro})
    set_property(SOURCE engine/src/error.c APPEND PROPERTY COMPILE_DEFINITIONS CFLOW_MUTANT="${CFLOW_MUTANT}")
endif()

# Kernels, what tells them apart by piece, and where they record to: compiled with and without CFLOW_RECORD.
set(CFLOW_SOURCES_RECORDED ${CFLOW_SOURCES})
list(FILTER CFLOW_SOURCES_RECORDED INCLUDE REGEX "/(kernels_[a-z0-9]+|exec_matrix|exec_batch_matrix|record)\\.c$")
# What takes the results of reads, and what spoils them: with and without CFLOW_FAULTS.
set(CFLOW_SOURCES_FAULTY engine/src/fault.c engine/src/reader.c)
set(CFLOW_SOURCES_COMMON ${CFLOW_SOURCES})
list(REMOVE_ITEM CFLOW_SOURCES_COMMON ${CFLOW_SOURCES_RECORDED} ${CFLOW_SOURCES_FAULTY})

# What cflow_build_info() returns, in front of the mutant's name.
set(info ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION} ${CMAKE_C_FLAGS} ${optimisation} ${base_flags})
list(APPEND info ${sanitize_flags})
if(CFLOW_SIMDE)
    list(APPEND info "(AVX-512 emulated by SIMDe)")
endif()
list(JOIN info " " info)
string(REPLACE "\"" "'" info "${info}")
set_property(SOURCE engine/src/error.c APPEND PROPERTY COMPILE_DEFINITIONS "CFLOW_BUILD_INFO=\"${info}\"")
