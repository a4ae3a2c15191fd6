# Toolchain file: builds for 64-bit Arm on another machine, and runs what it built under qemu.
#   Debian, Ubuntu: apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
#   cmake -S . -B build-arm --toolchain cmake/aarch64.cmake -DCFLOW_TESTS=ON && cmake --build build-arm
#   QEMU_CPU=max ctest --test-dir build-arm                 QEMU_CPU=cortex-a72: a processor without dot products
# With clang: -DCMAKE_C_COMPILER=clang (it takes headers and libraries from the cross compiler's packages).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(NOT CMAKE_C_COMPILER)
    set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
endif()
set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu) # for clang; gcc has its target in its name
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
