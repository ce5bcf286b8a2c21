uprobe0: 69 instructions
440b000  push rbx
440b001  push r13
440b003  push r14
440b005  mov rbx,rdi
440b008  lea rdi,[40A100h]
440b00f  mov rdi,[rdi+8]
440b013  cmp rdi,0
440b017  jne 000000000440B112h
440b01d  mov eax,fs:[2D0h]
440b025  mov edx,eax
440b027  mov r9d,[8]
440b02e  test r9d,r9d
440b031  jne 000000000440B049h
440b037  push rcx
440b038  mov eax,27h
440b03d  syscall
440b03f  pop rcx
440b040  mov [8],eax
440b046  mov r9d,eax
440b049  mov rax,r9
440b04c  shl rax,20h
440b050  or rax,rdx
440b053  mov r13,rax
440b056  lea rdi,[1080h]
440b05d  mov esi,28h
440b062  mov edx,0
440b067  call ring_reserve
440b06c  mov r14,rax
440b06f  cmp r14,0
440b073  je 000000000440B0F8h
440b079  mov edi,0
440b07e  mov [r14],edi
440b081  mov [r14+10h],r13
440b085  mov eax,fs:[0FFFFFFFFFFFFFF64h]
440b08d  cmp eax,4
440b090  sbb r11d,r11d
440b093  and eax,r11d
440b096  mov [r14+4],eax
440b09a  mov r11,[1000h]
440b0a1  shl r11,4
440b0a5  lea r9,[1040h]
440b0ac  add r11,r9
440b0af  rdtsc
440b0b1  shl rdx,20h
440b0b5  or rax,rdx
440b0b8  mul qword ptr [r11]
440b0bb  shrd rax,rdx,20h
440b0c0  add rax,[r11+8]
440b0c4  add rax,[1008h]
440b0cb  mov [r14+8],rax
440b0cf  mov rdi,[rbx+70h]
440b0d3  mov [r14+18h],rdi
440b0d7  mov rdi,[rbx+68h]
440b0db  mov [r14+20h],rdi
440b0df  mov rdi,r14
440b0e2  mov esi,0
440b0e7  and dword ptr [rdi-8],7FFFFFFFh
440b0ee  mov eax,0
440b0f3  jmp 000000000440B117h
440b0f8  lea rdi,[40A1C0h]
440b0ff  mov esi,1
440b104  lock add [rdi],rsi
440b108  mov eax,0
440b10d  jmp 000000000440B117h
440b112  mov eax,0
440b117  pop r14
440b119  pop r13
440b11b  pop rbx
440b11c  ret

