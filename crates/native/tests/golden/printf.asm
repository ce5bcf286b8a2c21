uprobe0: 69 instructions
10000000  push rbx
10000001  push r13
10000003  push r14
10000005  mov rbx,rdi
10000008  lea rdi,[40A100h]
1000000f  mov rdi,[rdi+8]
10000013  cmp rdi,0
10000017  jne 0000000010000112h
1000001d  mov eax,fs:[2D0h]
10000025  mov edx,eax
10000027  mov r9d,[8]
1000002e  test r9d,r9d
10000031  jne 0000000010000049h
10000037  push rcx
10000038  mov eax,27h
1000003d  syscall
1000003f  pop rcx
10000040  mov [8],eax
10000046  mov r9d,eax
10000049  mov rax,r9
1000004c  shl rax,20h
10000050  or rax,rdx
10000053  mov r13,rax
10000056  lea rdi,[1180h]
1000005d  mov esi,28h
10000062  mov edx,0
10000067  call ring_reserve
1000006c  mov r14,rax
1000006f  cmp r14,0
10000073  je 00000000100000F8h
10000079  mov edi,0
1000007e  mov [r14],edi
10000081  mov [r14+10h],r13
10000085  mov eax,fs:[0FFFFFFFFFFFFFF64h]
1000008d  cmp eax,4
10000090  sbb r11d,r11d
10000093  and eax,r11d
10000096  mov [r14+4],eax
1000009a  mov r11,[1000h]
100000a1  shl r11,4
100000a5  lea r9,[1040h]
100000ac  add r11,r9
100000af  rdtsc
100000b1  shl rdx,20h
100000b5  or rax,rdx
100000b8  mul qword ptr [r11]
100000bb  shrd rax,rdx,20h
100000c0  add rax,[r11+8]
100000c4  add rax,[1008h]
100000cb  mov [r14+8],rax
100000cf  mov rdi,[rbx+70h]
100000d3  mov [r14+18h],rdi
100000d7  mov rdi,[rbx+68h]
100000db  mov [r14+20h],rdi
100000df  mov rdi,r14
100000e2  mov esi,0
100000e7  and dword ptr [rdi-8],7FFFFFFFh
100000ee  mov eax,0
100000f3  jmp 0000000010000117h
100000f8  lea rdi,[40A1C0h]
100000ff  mov esi,1
10000104  lock add [rdi],rsi
10000108  mov eax,0
1000010d  jmp 0000000010000117h
10000112  mov eax,0
10000117  pop r14
10000119  pop r13
1000011b  pop rbx
1000011c  ret

