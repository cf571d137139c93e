# CUDA: the raw kernels and NCCL (gpu/cuda, no LibTorch), and their glue to LibTorch (gpu/torch_cuda).
#   GRAPEVINE_CUDA=AUTO  what can be built is built; a status line says what, and why not the rest
#                  ON    the kernels are wanted: an error where they cannot be built
#                  OFF   nothing is looked for
# Sets GRAPEVINE_HAVE_CUDA and GRAPEVINE_HAVE_TORCH_CUDA. CUDA 12 or newer.
set(GRAPEVINE_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO, ON or OFF")
set_property(CACHE GRAPEVINE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(GRAPEVINE_HAVE_CUDA FALSE)
set(GRAPEVINE_HAVE_TORCH_CUDA FALSE)

# Why the kernels cannot be built, in `out`; empty where they can. A compiler that does not take the
# host compiler, or finds no C++17, is one that does not work.
function(grapevine_cuda_obstacle out)
  set(${out} "" PARENT_SCOPE)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${out} "no nvcc that works with ${CMAKE_CXX_COMPILER} (put it on PATH, or set CMAKE_CUDA_COMPILER)"
        PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE said ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)(\\.[0-9]+)?" matched "${said}")
  set(GRAPEVINE_NVCC_MAJOR "${CMAKE_MATCH_1}" PARENT_SCOPE)
  set(GRAPEVINE_NVCC_VERSION "${CMAKE_MATCH_1}${CMAKE_MATCH_2}" PARENT_SCOPE)
  if(matched AND CMAKE_MATCH_1 LESS 12)
    set(${out} "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}: 12 or newer is needed" PARENT_SCOPE)
  endif()
endfunction()

# The CUDA that the LibTorch which was found was built with: its major version, empty where it does not
# say. A wheel and a zip differ in what they say of themselves; both name the runtime that they load.
function(grapevine_torch_cuda_major out)
  set(${out} "" PARENT_SCOPE)
  set(library ${TORCH_INSTALL_PREFIX}/lib/libc10_cuda.so)
  if(NOT EXISTS ${library})
    return()
  endif()
  file(STRINGS ${library} names REGEX "^libcudart[^ ]*\\.so\\.[0-9]+")
  foreach(name IN LISTS names)
    if(name MATCHES "^libcudart[^ ]*\\.so\\.([0-9]+)")
      set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# The same with its minor version, e.g. 13.2: of version.py in a wheel, of build-version in a zip
# ("2.1.0+cu121"). Empty where neither says it.
function(grapevine_torch_cuda_version out)
  set(${out} "" PARENT_SCOPE)
  foreach(name IN ITEMS version.py build-version)
    if(EXISTS ${TORCH_INSTALL_PREFIX}/${name})
      file(STRINGS ${TORCH_INSTALL_PREFIX}/${name} lines REGEX "\\+cu[0-9]+")
      if(lines MATCHES "\\+cu([0-9]+)([0-9])")
        set(${out} ${CMAKE_MATCH_1}.${CMAKE_MATCH_2} PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

if(GRAPEVINE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA kernels: off (GRAPEVINE_CUDA=OFF)")
else()
  grapevine_cuda_obstacle(obstacle)
  if(obstacle AND GRAPEVINE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GRAPEVINE_CUDA=ON, but there is ${obstacle}")
  elseif(obstacle)
    message(STATUS "CUDA kernels: not built, ${obstacle}")
  else()
    add_subdirectory(${CMAKE_SOURCE_DIR}/gpu/cuda ${CMAKE_BINARY_DIR}/gpu_cuda)
    set(GRAPEVINE_HAVE_CUDA TRUE)
  endif()
endif()

# The glue, where the LibTorch that was found has CUDA, of the major version of nvcc: the runtime in the
# kernels would ask for another driver than LibTorch's. Programs put it in place by a call
# (gpu/torch_cuda/register.hpp).
if(GRAPEVINE_HAVE_CUDA)
  grapevine_torch_cuda_major(torch_major)
  if(NOT (TARGET torch_cuda OR TORCH_CUDA_LIBRARIES))
    message(STATUS "CUDA for LibTorch: not built, the LibTorch in ${TORCH_INSTALL_PREFIX} is for the CPU")
  elseif(torch_major AND GRAPEVINE_NVCC_MAJOR AND NOT torch_major STREQUAL GRAPEVINE_NVCC_MAJOR)
    set(differ "nvcc is of CUDA ${GRAPEVINE_NVCC_MAJOR}, the LibTorch in ${TORCH_INSTALL_PREFIX} of CUDA ${torch_major}")
    string(APPEND differ ": set CMAKE_CUDA_COMPILER to an nvcc of CUDA ${torch_major}, or take another LibTorch")
    if(GRAPEVINE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "GRAPEVINE_CUDA=ON, but ${differ}")
    endif()
    message(WARNING "CUDA for LibTorch: not built, ${differ}")
  else()
    set(GRAPEVINE_HAVE_TORCH_CUDA TRUE)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/gpu/torch_cuda/*.cpp)
    add_library(grapevine_torch_cuda STATIC ${sources})
    target_link_libraries(grapevine_torch_cuda PUBLIC grapevine_options grapevine_gpu grapevine_cuda)
    target_compile_definitions(grapevine_torch_cuda PUBLIC GRAPEVINE_TORCH_CUDA)
    grapevine_pch(grapevine_torch_cuda)
    message(STATUS "CUDA for LibTorch: built")
    # The programs load the toolkit's runtime, also for LibTorch.
    grapevine_torch_cuda_version(torch_version)
    if(torch_version AND GRAPEVINE_NVCC_VERSION AND GRAPEVINE_NVCC_VERSION VERSION_LESS torch_version)
      message(WARNING "nvcc is of CUDA ${GRAPEVINE_NVCC_VERSION}, the LibTorch in ${TORCH_INSTALL_PREFIX} of CUDA "
              "${torch_version}: the programs load the older libcudart of the toolkit. If one ends with 'undefined "
              "symbol', install the toolkit ${torch_version}")
    endif()
  endif()
endif()
set(GRAPEVINE_BUILDS_TORCH_CUDA ${GRAPEVINE_HAVE_TORCH_CUDA} CACHE INTERNAL "For scripts/test-gpu")
