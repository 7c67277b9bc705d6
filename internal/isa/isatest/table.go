package isatest

import (
	"strings"

	"github.com/klauspost/cpuid/v2"
)

// instructions has the features of each instruction, by encoding and mnemonic.
var instructions = listed(rows)

// rows lists the features of the instructions that kernels may use, under the mnemonics of objdump's Intel
// syntax (Intel's manual, volume 2, column "CPUID feature flag"). Where forms of an instruction need
// different features, the row has the larger set: VPXOR of 128 bits needs AVX alone. EVEX forms of 128
// and 256 bits need AVX512VL in addition. Legacy rows without features have what
// every amd64 processor has.
var rows = []row{
	{legacy, nil, `add adc and bsf bsr bt cmova cmovae cmovb cmovbe cmove cmovg cmovge cmovl cmovle cmovne cmp dec imul
		inc ja jae jb jbe je jg jge jl jle jmp jne lea mov movabs movd movq movsx movsxd movzx mul neg nop not or pop push ret
		rol ror sar sbb shl shr sub test xchg xor prefetchnta prefetcht0 prefetcht1 prefetcht2 sfence`},

	{vex, []cpuid.FeatureID{cpuid.BMI1}, `andn bextr blsi blsmsk blsr`},
	{vex, []cpuid.FeatureID{cpuid.BMI2}, `bzhi mulx pdep pext rorx sarx shlx shrx`},
	{vex, []cpuid.FeatureID{cpuid.AVX}, `vaddps vaddss vandnps vandps vblendps vblendvps vbroadcastf128 vcmpps vcmpss
		vcvtdq2ps vcvtps2dq vcvtsi2ss vcvttps2dq vdivps vdivss vextractf128 vinsertf128 vmaxps vmaxss vminps vminss vmovaps
		vmovd vmovdqa vmovdqu vmovhlps vmovlhps vmovmskps vmovntdq vmovntps vmovq vmovshdup vmovsldup vmovss vmovups vmulps
		vmulss vorps vperm2f128 vpermilps vroundps vshufps vsqrtps vsqrtss vsubps vsubss vtestps vunpckhpd vunpckhps
		vunpcklpd vunpcklps vxorps vzeroall vzeroupper`},
	{vex, []cpuid.FeatureID{cpuid.AVX, cpuid.AVX2}, `vbroadcasti128 vbroadcastss vextracti128 vinserti128 vpabsb vpabsd
		vpabsw vpackssdw vpacksswb vpackusdw vpackuswb vpaddb vpaddd vpaddq vpaddsw vpaddw vpalignr vpand vpandn vpblendd
		vpblendvb vpblendw vpbroadcastb vpbroadcastd vpbroadcastq vpbroadcastw vpcmpeqb vpcmpeqd vpcmpeqw vpcmpgtb vpcmpgtd
		vpcmpgtw vperm2i128 vpermd vpermps vpermq vphaddd vphaddw vpmaddubsw vpmaddwd vpmaxsd vpmaxsw vpmaxub vpminsd vpminsw
		vpminub vpmovmskb vpmovsxbd vpmovsxbw vpmovsxwd vpmovzxbd vpmovzxbw vpmovzxwd vpmulhrsw vpmulld vpmullw vpmuludq vpor
		vpsadbw vpshufb vpshufd vpshufhw vpshuflw vpsignb vpsignd vpsignw vpslld vpslldq vpsllq vpsllvd vpsllw vpsrad vpsravd
		vpsraw vpsrld vpsrldq vpsrlq vpsrlvd vpsrlw vpsubb vpsubd vpsubq vpsubw vpunpckhbw vpunpckhdq vpunpckhqdq vpunpckhwd
		vpunpcklbw vpunpckldq vpunpcklqdq vpunpcklwd vpxor`},
	{vex, []cpuid.FeatureID{cpuid.AVX, cpuid.F16C}, `vcvtph2ps vcvtps2ph`},
	{vex, []cpuid.FeatureID{cpuid.AVX, cpuid.FMA3}, `vfmadd132ps vfmadd132ss vfmadd213ps vfmadd213ss vfmadd231ps
		vfmadd231ss vfnmadd132ps vfnmadd213ps vfnmadd231ps`},
	{vex, []cpuid.FeatureID{cpuid.AVX, cpuid.AVXVNNI}, `vpdpbusd vpdpbusds vpdpwssd vpdpwssds`},
	{vex, []cpuid.FeatureID{cpuid.AVX512F}, `kandw kmovw knotw korw kortestw kxorw`},
	{vex, []cpuid.FeatureID{cpuid.AVX512DQ}, `kmovb`},
	{vex, []cpuid.FeatureID{cpuid.AVX512BW}, `kmovd kmovq`},

	{evex, []cpuid.FeatureID{cpuid.AVX512F}, `valignd vaddps vblendmps vbroadcastf32x4 vbroadcasti32x4 vbroadcastss vcmpps
		vcvtdq2ps vcvtph2ps vcvtps2dq vcvtps2ph vdivps vextractf32x4 vextractf64x4 vextracti32x4 vextracti64x4 vfmadd132ps
		vfmadd213ps vfmadd231ps vfnmadd213ps vfnmadd231ps vinsertf64x4 vinserti64x4 vmaxps vminps vmovaps vmovdqa32 vmovdqa64
		vmovdqu32 vmovdqu64 vmovntdq vmovntps vmovups vmulps vpabsd vpaddd vpaddq vpandd vpandnd vpandq vpblendmd
		vpbroadcastd vpbroadcastq vpcmpd vpcmpeqd vpermd vpermi2d vpermi2ps vpermps vpermq vpermt2d vpermt2ps vpmaxsd vpminsd
		vpmovdb vpmovsxbd vpmovsxwd vpmovzxbd vpmovzxwd vpmulld vpmuludq vpord vporq vprold vprolq vpshufd vpslld vpsllq
		vpsllvd vpsrad vpsravd vpsrld vpsrlq vpsrlvd vpsubd vpsubq vpternlogd vpternlogq vptestmd vpxord vpxorq vrndscaleps
		vscalefps vshuff32x4 vshufi32x4 vshufps vsqrtps vsubps vunpckhpd vunpckhps vunpcklpd vunpcklps`},
	{evex, []cpuid.FeatureID{cpuid.AVX512F, cpuid.AVX512BW}, `vmovdqu16 vmovdqu8 vpabsb vpackssdw vpacksswb vpaddb vpaddw
		vpmaddubsw vpmaddwd vpmovsxbw vpmovzxbw vpsadbw vpshufb vpsllw vpsraw vpsrlw vpsubb vpsubw vpunpckhbw vpunpcklbw`},
	{evex, []cpuid.FeatureID{cpuid.AVX512F, cpuid.AVX512DQ}, `vandnps vandps vbroadcasti32x8 vextractf32x8 vextracti32x8
		vinsertf32x8 vorps vpmullq vxorps`},
	{evex, []cpuid.FeatureID{cpuid.AVX512F, cpuid.AVX512VNNI}, `vpdpbusd vpdpbusds vpdpwssd vpdpwssds`},
}

// row lists instructions of one encoding that need the same features.
type row struct {
	coded     encoding
	features  []cpuid.FeatureID
	mnemonics string
}

// listed returns the rows by encoding and mnemonic.
func listed(rows []row) map[encoding]map[string][]cpuid.FeatureID {
	by := map[encoding]map[string][]cpuid.FeatureID{}
	for _, r := range rows {
		if by[r.coded] == nil {
			by[r.coded] = map[string][]cpuid.FeatureID{}
		}
		for _, m := range strings.Fields(r.mnemonics) {
			by[r.coded][m] = r.features
		}
	}
	return by
}
