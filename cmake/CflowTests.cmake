# Native tests: every tests/c/*.c is one program that exits 0 when it passes. In those named *_faults reads fail on purpose.
file(GLOB test_sources CONFIGURE_DEPENDS tests/c/*.c)
foreach(source IN LISTS test_sources)
    cmake_path(GET source STEM name)
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE engine/src)
    set(reader cflow_reader_objects)
    if(name MATCHES "_faults$")
        set(reader cflow_faulty_objects)
    endif()
    target_link_libraries(${name} PRIVATE cflow_common_objects cflow_kernel_objects ${reader})
    target_compile_options(${name} PRIVATE -O1 -g)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600)
    list(APPEND test_programs ${name})
endforeach()

# The engine as a program, for tests on processors that are emulated.
add_executable(cflow_decode tests/c/driver/decode.c)
target_link_libraries(cflow_decode PRIVATE cflow_common_objects cflow_kernel_objects cflow_reader_objects)

# Sessions of several threads, with reads that fail, for a race detector.
add_executable(cflow_stress tests/c/driver/stress.c)
target_link_libraries(cflow_stress PRIVATE cflow_common_objects cflow_kernel_objects cflow_faulty_objects)

# All that the tests need, without the libraries for Python.
add_custom_target(cflow_tests DEPENDS ${test_programs} cflow_decode cflow_stress)

# A sanitizer that reports nothing may be one that is not there: it must catch two known faults first.
if(CFLOW_SANITIZE STREQUAL "thread")
    add_executable(race_canary cmake/race_canary.c)
    target_link_libraries(race_canary PRIVATE cflow_flags Threads::Threads)
    add_test(NAME sanitizer_catches_race COMMAND race_canary)
    set_tests_properties(sanitizer_catches_race PROPERTIES PASS_REGULAR_EXPRESSION "data race")
    # What tools/races.py runs.
    add_custom_target(cflow_races DEPENDS race_canary cflow_stress test_pool test_cache test_events test_session test_load
                      test_reader test_reader_faults)
endif()
if(CFLOW_SANITIZE MATCHES "address" AND CFLOW_SANITIZE MATCHES "undefined")
    add_executable(sanitizer_canary cmake/sanitizer_canary.c)
    target_link_libraries(sanitizer_canary PRIVATE cflow_flags)
    add_test(NAME sanitizer_catches_overflow COMMAND sanitizer_canary overflow)
    add_test(NAME sanitizer_catches_undefined COMMAND sanitizer_canary undefined)
    set_tests_properties(sanitizer_catches_overflow PROPERTIES PASS_REGULAR_EXPRESSION "heap-buffer-overflow")
    set_tests_properties(sanitizer_catches_undefined PROPERTIES PASS_REGULAR_EXPRESSION "signed integer overflow")
endif()
