//go:build cuda

// Every function of the driver API that this binary refers to, as a jump
// through a pointer that mezzo_cuda_resolve fills at the first call. Symbols
// of the executable win over those of shared libraries, so gorgonia.org/cu
// links against these, and the binary starts where there is no libcuda.so.1.
//
// A missing library or function is an error code of the call. cuInit is not
// here: package cu calls it in an init function and exits when it fails.

.macro trampoline name
	.globl	\name
	.type	\name, @function
\name:
	movq	pointer_\name(%rip), %rax
	testq	%rax, %rax
	jnz	1f
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%r8
	pushq	%r9
	subq	$24, %rsp
	movsd	%xmm0, (%rsp)
	movsd	%xmm1, 8(%rsp)
	leaq	name_\name(%rip), %rdi
	call	mezzo_cuda_resolve
	movsd	(%rsp), %xmm0
	movsd	8(%rsp), %xmm1
	addq	$24, %rsp
	popq	%r9
	popq	%r8
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	movq	%rax, pointer_\name(%rip)
1:	jmp	*%rax
	.size	\name, . - \name
	.section .rodata
name_\name:
	.asciz	"\name"
	.local	pointer_\name
	.comm	pointer_\name, 8, 8
	.text
.endm

	.section .note.GNU-stack, "", @progbits
	.text

	trampoline cuArray3DCreate_v2
	trampoline cuArray3DGetDescriptor_v2
	trampoline cuArrayCreate_v2
	trampoline cuArrayDestroy
	trampoline cuArrayGetDescriptor_v2
	trampoline cuCtxCreate_v2
	trampoline cuCtxCreate_v4
	trampoline cuCtxDestroy_v2
	trampoline cuCtxDisablePeerAccess
	trampoline cuCtxEnablePeerAccess
	trampoline cuCtxGetApiVersion
	trampoline cuCtxGetCacheConfig
	trampoline cuCtxGetCurrent
	trampoline cuCtxGetDevice
	trampoline cuCtxGetFlags
	trampoline cuCtxGetLimit
	trampoline cuCtxGetSharedMemConfig
	trampoline cuCtxGetStreamPriorityRange
	trampoline cuCtxPopCurrent_v2
	trampoline cuCtxPushCurrent_v2
	trampoline cuCtxResetPersistingL2Cache
	trampoline cuCtxSetCacheConfig
	trampoline cuCtxSetCurrent
	trampoline cuCtxSetLimit
	trampoline cuCtxSetSharedMemConfig
	trampoline cuCtxSynchronize
	trampoline cuDeviceCanAccessPeer
	trampoline cuDeviceGet
	trampoline cuDeviceGetAttribute
	trampoline cuDeviceGetCount
	trampoline cuDeviceGetName
	trampoline cuDeviceGetP2PAttribute
	trampoline cuDeviceGetUuid
	trampoline cuDeviceGetUuid_v2
	trampoline cuDevicePrimaryCtxGetState
	trampoline cuDevicePrimaryCtxRelease_v2
	trampoline cuDevicePrimaryCtxReset_v2
	trampoline cuDevicePrimaryCtxRetain
	trampoline cuDevicePrimaryCtxSetFlags_v2
	trampoline cuDeviceTotalMem_v2
	trampoline cuDriverGetVersion
	trampoline cuEventCreate
	trampoline cuEventDestroy_v2
	trampoline cuEventElapsedTime
	trampoline cuEventElapsedTime_v2
	trampoline cuEventQuery
	trampoline cuEventRecord
	trampoline cuEventSynchronize
	trampoline cuFuncGetAttribute
	trampoline cuFuncSetAttribute
	trampoline cuFuncSetCacheConfig
	trampoline cuFuncSetSharedMemConfig
	trampoline cuGetErrorName
	trampoline cuGetErrorString
	trampoline cuGraphAddChildGraphNode
	trampoline cuGraphAddDependencies
	trampoline cuGraphAddEmptyNode
	trampoline cuGraphAddHostNode
	trampoline cuGraphAddKernelNode
	trampoline cuGraphAddKernelNode_v2
	trampoline cuGraphAddMemcpyNode
	trampoline cuGraphAddMemsetNode
	trampoline cuGraphClone
	trampoline cuGraphCreate
	trampoline cuGraphDestroy
	trampoline cuGraphDestroyNode
	trampoline cuGraphExecDestroy
	trampoline cuGraphGetEdges
	trampoline cuGraphInstantiateWithFlags
	trampoline cuGraphLaunch
	trampoline cuLaunchKernel
	trampoline cuLinkAddData_v2
	trampoline cuLinkAddFile_v2
	trampoline cuLinkComplete
	trampoline cuLinkCreate_v2
	trampoline cuLinkDestroy
	trampoline cuMemAdvise
	trampoline cuMemAllocManaged
	trampoline cuMemAllocPitch_v2
	trampoline cuMemAlloc_v2
	trampoline cuMemFreeHost
	trampoline cuMemFree_v2
	trampoline cuMemGetAddressRange_v2
	trampoline cuMemGetInfo_v2
	trampoline cuMemHostAlloc
	trampoline cuMemPrefetchAsync
	trampoline cuMemcpy
	trampoline cuMemcpy2DAsync_v2
	trampoline cuMemcpy2DUnaligned_v2
	trampoline cuMemcpy2D_v2
	trampoline cuMemcpy3DAsync_v2
	trampoline cuMemcpy3DPeer
	trampoline cuMemcpy3DPeerAsync
	trampoline cuMemcpy3D_v2
	trampoline cuMemcpyAsync
	trampoline cuMemcpyAtoA_v2
	trampoline cuMemcpyAtoD_v2
	trampoline cuMemcpyAtoHAsync_v2
	trampoline cuMemcpyAtoH_v2
	trampoline cuMemcpyDtoA_v2
	trampoline cuMemcpyDtoDAsync_v2
	trampoline cuMemcpyDtoD_v2
	trampoline cuMemcpyDtoHAsync_v2
	trampoline cuMemcpyDtoH_v2
	trampoline cuMemcpyHtoAAsync_v2
	trampoline cuMemcpyHtoA_v2
	trampoline cuMemcpyHtoDAsync_v2
	trampoline cuMemcpyHtoD_v2
	trampoline cuMemcpyPeer
	trampoline cuMemcpyPeerAsync
	trampoline cuMemsetD16Async
	trampoline cuMemsetD16_v2
	trampoline cuMemsetD2D16Async
	trampoline cuMemsetD2D16_v2
	trampoline cuMemsetD2D32Async
	trampoline cuMemsetD2D32_v2
	trampoline cuMemsetD2D8Async
	trampoline cuMemsetD2D8_v2
	trampoline cuMemsetD32Async
	trampoline cuMemsetD32_v2
	trampoline cuMemsetD8Async
	trampoline cuMemsetD8_v2
	trampoline cuModuleGetFunction
	trampoline cuModuleGetGlobal_v2
	trampoline cuModuleGetSurfRef
	trampoline cuModuleGetTexRef
	trampoline cuModuleLoad
	trampoline cuModuleLoadData
	trampoline cuModuleLoadDataEx
	trampoline cuModuleLoadFatBinary
	trampoline cuModuleUnload
	trampoline cuOccupancyMaxActiveBlocksPerMultiprocessor
	trampoline cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
	trampoline cuPointerGetAttribute
	trampoline cuPointerSetAttribute
	trampoline cuStreamAttachMemAsync
	trampoline cuStreamBeginCapture_v2
	trampoline cuStreamCreate
	trampoline cuStreamCreateWithPriority
	trampoline cuStreamDestroy_v2
	trampoline cuStreamEndCapture
	trampoline cuStreamGetFlags
	trampoline cuStreamGetPriority
	trampoline cuStreamQuery
	trampoline cuStreamSynchronize
	trampoline cuStreamWaitEvent
	trampoline cuStreamWaitValue32
	trampoline cuStreamWaitValue32_v2
	trampoline cuStreamWriteValue32
	trampoline cuStreamWriteValue32_v2
	trampoline cuSurfRefGetArray
	trampoline cuSurfRefSetArray
	trampoline cuTexRefGetAddressMode
	trampoline cuTexRefGetAddress_v2
	trampoline cuTexRefGetArray
	trampoline cuTexRefGetBorderColor
	trampoline cuTexRefGetFilterMode
	trampoline cuTexRefGetFlags
	trampoline cuTexRefGetFormat
	trampoline cuTexRefGetMaxAnisotropy
	trampoline cuTexRefSetAddress2D_v3
	trampoline cuTexRefSetAddressMode
	trampoline cuTexRefSetAddress_v2
	trampoline cuTexRefSetArray
	trampoline cuTexRefSetBorderColor
	trampoline cuTexRefSetFilterMode
	trampoline cuTexRefSetFlags
	trampoline cuTexRefSetFormat
	trampoline cuTexRefSetMaxAnisotropy
	trampoline cuTexRefSetMipmapFilterMode
	trampoline cuTexRefSetMipmapLevelBias
	trampoline cuTexRefSetMipmapLevelClamp
