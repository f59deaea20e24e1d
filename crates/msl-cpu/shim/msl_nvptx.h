// What the library needs of an NVIDIA GPU; clang's NVPTX target, no CUDA toolkit.
#pragma once
namespace msl {
struct uint3_t { unsigned x, y, z; };
template <bool B, class T> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;
#define MSL_F inline __attribute__((always_inline))
MSL_F unsigned lane() { return __nvvm_read_ptx_sreg_laneid(); }
MSL_F float exp2f(float x) { return __nvvm_ex2_approx_f(x); }
MSL_F float expf(float x) { return __nvvm_ex2_approx_f(x * 1.4426950408889634f); }
MSL_F float log2f(float x) { return __nvvm_lg2_approx_f(x); }
MSL_F float logf(float x) { return __nvvm_lg2_approx_f(x) * 0.6931471805599453f; }
MSL_F float sinf(float x) { return __nvvm_sin_approx_f(x); }
MSL_F float cosf(float x) { return __nvvm_cos_approx_f(x); }
MSL_F float sqrtf(float x) { return __nvvm_sqrt_rn_f(x); }
MSL_F float rsqrtf(float x) { return __nvvm_rsqrt_approx_f(x); }
MSL_F float tanhf(float x) { float e = expf(2 * x); return 1 - 2 / (e + 1); }
MSL_F uint3_t threads() { return {unsigned(__nvvm_read_ptx_sreg_ntid_x()), unsigned(__nvvm_read_ptx_sreg_ntid_y()), unsigned(__nvvm_read_ptx_sreg_ntid_z())}; }
MSL_F uint3_t thread() { return {unsigned(__nvvm_read_ptx_sreg_tid_x()), unsigned(__nvvm_read_ptx_sreg_tid_y()), unsigned(__nvvm_read_ptx_sreg_tid_z())}; }
MSL_F uint3_t group() { return {unsigned(__nvvm_read_ptx_sreg_ctaid_x()), unsigned(__nvvm_read_ptx_sreg_ctaid_y()), unsigned(__nvvm_read_ptx_sreg_ctaid_z())}; }
MSL_F uint3_t groups() { return {unsigned(__nvvm_read_ptx_sreg_nctaid_x()), unsigned(__nvvm_read_ptx_sreg_nctaid_y()), unsigned(__nvvm_read_ptx_sreg_nctaid_z())}; }
MSL_F unsigned index() { uint3_t n = threads(), t = thread(); return (t.z * n.y + t.y) * n.x + t.x; }
MSL_F uint3_t thread_in_grid() {
  uint3_t g = group(), n = threads(), t = thread();
  return {g.x * n.x + t.x, g.y * n.y + t.y, g.z * n.z + t.z};
}
MSL_F uint3_t threads_in_grid() {
  uint3_t g = groups(), n = threads();
  return {g.x * n.x, g.y * n.y, g.z * n.z};
}
MSL_F unsigned simds() {
  uint3_t n = threads();
  return (n.x * n.y * n.z + 31) / 32;
}
}  // namespace msl
