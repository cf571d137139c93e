# Flags shared by every target: warnings, sanitizers, ccache. A program that uses the installed package
# gets the place of the headers, the standard and the sanitizers of them.
add_library(grapevine_options INTERFACE)
target_include_directories(grapevine_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
target_compile_options(grapevine_options INTERFACE
    $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra> $<BUILD_INTERFACE:-Wno-unused-parameter>
    $<$<BOOL:${GRAPEVINE_WERROR}>:$<BUILD_INTERFACE:-Werror>>)
target_compile_definitions(grapevine_options INTERFACE
                           $<BUILD_INTERFACE:GRAPEVINE_VERSION="${PROJECT_VERSION}">)
target_compile_features(grapevine_options INTERFACE cxx_std_${GRAPEVINE_CXX_STANDARD})

# Compilers fuse a product and a sum into one operation, with one rounding, where the processor has it:
# on aarch64, not on x86-64 unless flags ask for a newer one. The bits would then differ from those of
# the CUDA kernels (-fmad=false) and of other machines.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|i[3-6]86)$" OR CMAKE_CXX_FLAGS MATCHES "-march=|-mfma")
  target_compile_options(grapevine_options INTERFACE $<BUILD_INTERFACE:-ffp-contract=off>)
endif()

# No check of null references: CAF 0.17's headers bind one, to the arguments of an actor that is spawned
# without any. A null pointer that is used ends in a signal, which AddressSanitizer reports.
if(GRAPEVINE_SANITIZE)
  target_compile_options(grapevine_options INTERFACE -fsanitize=${GRAPEVINE_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all -fno-sanitize=vptr,null)
  target_link_options(grapevine_options INTERFACE -fsanitize=${GRAPEVINE_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need these two liberties; ccache documents both.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(grapevine_options INTERFACE $<BUILD_INTERFACE:-fpch-preprocess>)
  endif()
endif()
