uprobe0: 59 instructions
40b000  push rbx
40b001  push r13
40b003  push r14
40b005  mov rbx,rdi
40b008  lea rdi,[40A100h]
40b00f  mov rdi,[rdi+8]
40b013  cmp rdi,0
40b017  jne 000000000040B0F2h
40b01d  mov eax,fs:[2D0h]
40b025  mov r9d,[8]
40b02c  shl r9,20h
40b030  or rax,r9
40b033  mov r13,rax
40b036  lea rdi,[1080h]
40b03d  mov esi,28h
40b042  mov edx,0
40b047  call ring_reserve
40b04c  mov r14,rax
40b04f  cmp r14,0
40b053  je 000000000040B0D8h
40b059  mov edi,0
40b05e  mov [r14],edi
40b061  mov [r14+10h],r13
40b065  mov eax,fs:[0FFFFFFFFFFFFFF64h]
40b06d  cmp eax,4
40b070  sbb r11d,r11d
40b073  and eax,r11d
40b076  mov [r14+4],eax
40b07a  mov r11,[1000h]
40b081  shl r11,4
40b085  lea r9,[1040h]
40b08c  add r11,r9
40b08f  rdtsc
40b091  shl rdx,20h
40b095  or rax,rdx
40b098  mul qword ptr [r11]
40b09b  shrd rax,rdx,20h
40b0a0  add rax,[r11+8]
40b0a4  add rax,[1008h]
40b0ab  mov [r14+8],rax
40b0af  mov rdi,[rbx+70h]
40b0b3  mov [r14+18h],rdi
40b0b7  mov rdi,[rbx+68h]
40b0bb  mov [r14+20h],rdi
40b0bf  mov rdi,r14
40b0c2  mov esi,0
40b0c7  and dword ptr [rdi-8],7FFFFFFFh
40b0ce  mov eax,0
40b0d3  jmp 000000000040B0F7h
40b0d8  lea rdi,[40A1C0h]
40b0df  mov esi,1
40b0e4  lock add [rdi],rsi
40b0e8  mov eax,0
40b0ed  jmp 000000000040B0F7h
40b0f2  mov eax,0
40b0f7  pop r14
40b0f9  pop r13
40b0fb  pop rbx
40b0fc  ret

